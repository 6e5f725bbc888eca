(() => {
  const { read, byId, number, counted, h, s, table, clean, textNodes, begin, end } = page;
  begin();
  const { title, runs } = read("data");
  const WIDTH = 480, HEIGHT = 220, LEFT = 84, RIGHT = 12, TOP = 12, BOTTOM = 30;
  const STATES = { learned: ["fine", "✔"], unclear: ["note", "●"], not_learned: ["bad", "✖"], diverged: ["bad", "✖"] };
  const WORDS = { learned: "learned", unclear: "unclear", not_learned: "did not learn", diverged: "diverged" };
  const figure = (value) => value === null || value === undefined ? "none" :
    value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e7) ? Number(value.toPrecision(3)).toExponential() :
    Number(value.toPrecision(4)).toLocaleString("en-US", { maximumSignificantDigits: 4 });
  const several = runs.length > 1;

  byId("title").textContent = clean(title);
  document.title = `${clean(title)} – fmtkit train`;
  byId("subtitle").append(...(several ? ["Two runs side by side"] : textNodes(runs[0].what)));

  /* ---- verdict ---- */
  for (const run of runs) {
    const [severity, mark] = STATES[run.verdict.state];
    // A mark, a word and a colour: each of them alone tells states apart.
    const badge = h("span", { class: `badge is-${severity}` }, h("span", { "aria-hidden": "true" }, mark), ` ${WORDS[run.verdict.state]}`);
    byId("verdict-body").append(
      several ? h("h3", {}, ...textNodes(run.name)) : "",
      several ? h("p", { class: "quiet" }, ...textNodes(run.what)) : "",
      h("p", { class: "verdict" }, badge, " ", ...textNodes(run.verdict.text)),
      ...(run.verdict.advice.length ? [h("ul", {}, run.verdict.advice.map((text) => h("li", {}, ...textNodes(text))))] : []),
      ...run.findings.map((text) => h("p", { class: "note" }, ...textNodes(text))),
      h("dl", { class: "cards" }, run.facts.map(([name, text]) => h("div", {}, h("dt", {}, ...textNodes(name)), h("dd", {}, ...textNodes(text))))));
  }

  /* ---- curves ---- */
  if (several) byId("legend").append(...runs.flatMap((run, k) => [h("span", { class: `key line-${k}` }), ...textNodes(run.name), " "]));
  function curve(name) {
    const lines = runs.map((run) => run.curves[name] ?? []);
    const points = lines.flat().filter(([, value]) => value !== null);
    if (!points.length) return null;
    let [left, right] = [Math.min(...points.map((p) => p[0])), Math.max(...points.map((p) => p[0]))];
    let [low, high] = [Math.min(...points.map((p) => p[1])), Math.max(...points.map((p) => p[1]))];
    if (low === high) [low, high] = [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
    if (left === right) [left, right] = [left - 0.5, right + 0.5];
    const x = (step) => LEFT + (WIDTH - LEFT - RIGHT) * (step - left) / (right - left);
    const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low);
    // A value that is no number is a gap of its line.
    const path = (line) => {
      let pen = "M", out = "";
      for (const [step, value] of line) {
        if (value === null) { pen = "M"; continue; }
        out += `${pen}${x(step).toFixed(1)} ${y(value).toFixed(1)}`; pen = "L";
      }
      return out;
    };
    const cross = s("line", { class: "cross", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    const dots = lines.map((_, k) => s("circle", { class: `dot line-${k}`, r: 4, visibility: "hidden" }));
    const ends = (line) => { const found = line.filter(([, value]) => value !== null); return found.length ? [found[0], found[found.length - 1]] : null; };
    const moves = lines.map((line, k) => { const found = ends(line); return (several ? `${clean(runs[k].name)}: ` : "") + (found ? `${figure(found[0][1])} → ${figure(found[1][1])}` : "no number"); }).join(", ");
    const svg = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", tabindex: 0,
      class: "curve", "aria-label": `${clean(name)}, steps ${number(left)} to ${number(right)}: ${moves}` },
      s("line", { class: "axis", x1: LEFT, x2: LEFT, y1: TOP, y2: HEIGHT - BOTTOM }),
      s("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }),
      s("text", { x: LEFT - 6, y: TOP + 8, "text-anchor": "end" }, figure(high)),
      s("text", { x: LEFT - 6, y: HEIGHT - BOTTOM, "text-anchor": "end" }, figure(low)),
      s("text", { x: LEFT, y: HEIGHT - 8 }, `step ${number(left)}`),
      s("text", { x: WIDTH - RIGHT, y: HEIGHT - 8, "text-anchor": "end" }, number(right)),
      ...lines.map((line, k) => s("path", { class: `line line-${k}`, d: path(line) })), cross, ...dots);
    // One point is no line.
    lines.forEach((line, k) => { if (line.length === 1 && line[0][1] !== null) svg.append(s("circle", { class: `dot line-${k}`, r: 4, cx: x(line[0][0]), cy: y(line[0][1]) })); });
    const said = h("p", { class: "reading quiet", role: "status" }, moves);
    const steps = [...new Set(lines.flat().map(([step]) => step))].sort((a, b) => a - b);
    let at = -1;
    function point(index) {
      at = Math.max(0, Math.min(steps.length - 1, index));
      const step = steps[at];
      cross.setAttribute("x1", x(step)); cross.setAttribute("x2", x(step)); cross.setAttribute("visibility", "visible");
      const texts = lines.map((line, k) => {
        const found = line.find((p) => p[0] === step), shown = found !== undefined && found[1] !== null;
        dots[k].setAttribute("visibility", shown ? "visible" : "hidden");
        if (shown) { dots[k].setAttribute("cx", x(step)); dots[k].setAttribute("cy", y(found[1])); }
        const value = found === undefined ? "no log" : found[1] === null ? "no number" : figure(found[1]);
        return several ? `${clean(runs[k].name)}: ${value}` : value;
      });
      said.textContent = `step ${number(step)}: ${texts.join(", ")}`;
    }
    const nearest = (place) => steps.reduce((best, step, i) => Math.abs(x(step) - place) < Math.abs(x(steps[best]) - place) ? i : best, 0);
    svg.addEventListener("pointermove", (event) => { const box = svg.getBoundingClientRect(); point(nearest((event.clientX - box.left) * WIDTH / box.width)); });
    svg.addEventListener("keydown", (event) => {
      const places = { ArrowRight: at + 1, ArrowLeft: at < 0 ? steps.length - 1 : at - 1, Home: 0, End: steps.length - 1 };
      if (event.key in places) { event.preventDefault(); point(places[event.key]); }
    });
    return h("figure", {}, h("figcaption", {}, ...textNodes(name)), svg, said);
  }
  const names = [...new Set(runs.flatMap((run) => run.order))], SHOWN = 6;
  const figures = names.map(curve).filter(Boolean);
  byId("curves-body").append(...figures.slice(0, SHOWN));
  if (!figures.length) byId("curves-body").append(h("p", {}, "No metric was logged."));
  const more = byId("more-curves");
  if (figures.length > SHOWN) {
    more.hidden = false;
    more.querySelector("summary").textContent = `${counted(figures.length - SHOWN, "more curve")}`;
    more.querySelector("div").append(...figures.slice(SHOWN));
  }

  /* ---- metrics, settings, data ---- */
  const heads = (one, many) => several ? runs.flatMap((run) => many.map((word) => `${clean(run.name)} ${word}`)) : one;
  const ends = runs.map((run) => new Map(run.metrics.map(([name, ...values]) => [name, values])));
  const rows = [...new Set(runs.flatMap((run) => run.metrics.map(([name]) => name)))]
    .map((name) => [clean(name), ...ends.flatMap((found) => (found.get(name) ?? [null, null]).map((value) => value === null ? "" : figure(value)))]);
  byId("metrics-body").append(rows.length ? table(["metric", ...heads(["first log", "last log"], ["first", "last"])], rows, [1, 2, 3, 4]) : h("p", {}, "There is none."));

  const settings = runs.map((run) => new Map(run.settings));
  const keys = [...new Set(settings.flatMap((found) => [...found.keys()]))].sort();
  const values = (key) => settings.map((found) => found.get(key) ?? "");
  const differ = keys.filter((key) => new Set(values(key)).size > 1), equal = keys.filter((key) => !differ.includes(key));
  const list = (found) => table(["key", ...(several ? runs.map((run) => clean(run.name)) : ["value"])], found.map((key) => [clean(key), ...values(key).map(clean)]));
  if (several) {
    byId("settings-body").append(h("p", {}, differ.length ? `${counted(differ.length, "setting")} differ${differ.length === 1 ? "s" : ""}.` : "All settings are equal."));
    if (differ.length) byId("settings-body").append(list(differ));
    if (equal.length) byId("settings-body").append(h("details", {}, h("summary", {}, counted(equal.length, "equal setting")), list(equal)));
  } else byId("settings-body").append(keys.length ? list(keys) : h("p", {}, "None was set."), h("p", { class: "quiet" }, "These are what was set by hand; plan.json has every argument and its origin."));

  for (const run of runs) {
    byId("data-body").append(several ? h("h3", {}, ...textNodes(run.name)) : "");
    if (run.versions) byId("settings-body").append(h("p", { class: "quiet" }, ...textNodes(several ? `${run.name}: ${run.versions}` : run.versions)));
    const files = run.data.map(([file, count, digest]) => [clean(file), number(count), clean(digest)]);
    byId("data-body").append(files.length ? table(["file", "rows", "SHA-256"], files, [1]) : h("p", {}, "Nothing is known of it."));
  }

  /* ---- answers ---- */
  const answered = runs.filter((run) => run.answers !== null);
  if (answered.length) { byId("answers").hidden = false; byId("answers-link").hidden = false; }
  for (const run of answered) {
    const { text, link, steps } = run.answers;
    byId("answers-body").append(several ? h("h3", {}, ...textNodes(run.name)) : "",
      h("p", {}, ...textNodes(text), ...(link && !several ? [" ", h("a", { href: link }, "Search them"), "."] : [])),
      ...steps.map(({ step, heads: columns, rows: cells }) => h("div", {}, h("h3", {}, `Step ${number(step)}`), h("div", { class: "scroll" }, table(columns.map(clean), cells.map((line) => line.map(clean)))))));
  }
  end();
})();
