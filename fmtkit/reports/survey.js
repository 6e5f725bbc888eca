(() => {
  const { read, byId, number, counted, percent, h, s, table, begin, end } = page;
  const { survey, rows: index, how, curves } = read("data");
  // Units are written in the plural: tokens, characters.
  const units = (n) => counted(n, survey.unit.slice(0, -1));
  const placeText = (place) => place.line === null ? `row ${number(place.source_row)}` : `line ${number(place.line)}`;
  const isRead = survey.table !== null;

  /* ---- overview ---- */
  const names = survey.sources.map((source) => source.path);
  byId("title").textContent = names.length > 3 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ");
  document.title = `${names[0] ?? "nothing"} – fmtkit inspect`;
  byId("subtitle").textContent = isRead ? `${survey.type} → ${survey.table}${survey.template ? `, template ${survey.template}` : ""}${survey.tokenizer ? `, tokenizer ${survey.tokenizer}` : ""}` : "no type";
  const SEVERITIES = { fine: "✔", bad: "✖", error: "✖", warning: "▲", note: "●" };
  // A mark, a word and a colour: each of them alone tells severities apart.
  const badge = (severity) => h("span", { class: `badge is-${severity}` }, h("span", { "aria-hidden": "true" }, SEVERITIES[severity]), ` ${severity}`);
  const cards = [
    ["Rows read", number(survey.rows_read)],
    ["Rows of the table", number(survey.rows)],
    ["Bad rows", number(survey.ledger.quarantined ?? 0)],
    ["Best guess", survey.best_guess === null ? "none" : `${survey.best_guess}${survey.certainty ? `, ${survey.certainty}` : ""}`],
    ["Messages", Object.entries(survey.roles).map(([role, n]) => `${role} ${number(n)}`).join(", ") || "none"],
    ["Turns a row", survey.turns ? `p50 ${survey.turns.p50}, max ${survey.turns.max}` : "none"],
    ["Scripts", Object.entries(survey.scripts).slice(0, 4).map(([name, share]) => `${name} ${percent(share)}`).join(", ") || "none"],
  ];
  if (survey.images) cards.push(["Images", `${number(survey.images.images)} in ${counted(survey.images.rows, "row")}: ${Object.entries(survey.images.formats).map(([name, n]) => `${name} ${number(n)}`).join(", ") || "none"}`]);
  const overview = byId("overview-body");
  overview.append(h("p", { class: "verdict" }, badge(survey.verdict.severity), ` ${survey.verdict.text}`));
  overview.append(h("dl", { class: "cards" }, cards.map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, text)))));
  for (const note of survey.notes) overview.append(h("p", { class: "note" }, note));

  /* ---- findings ---- */
  const findings = byId("findings-body");
  function placeButtons(places, code) {
    return h("div", { class: "places" }, places.map((place) =>
      h("button", { type: "button", title: `${place.source}, ${placeText(place)}`, onclick: () => showFinding(code, place.row) }, placeText(place))));
  }
  function finding(severity, code, count, share, message, advice, places, details) {
    const shown = Object.entries(details).map(([key, value]) => `${key} ${typeof value === "number" ? Number(value.toPrecision(4)).toLocaleString("en-US") : value}`);
    return h("div", { class: `finding is-${severity}` },
      h("p", {}, badge(severity), " ", h("code", {}, code), ` – ${counted(count, "row")}${share === null ? "" : `, ${percent(share)}`}: ${message}. `, advice ? h("span", { class: "quiet" }, `${advice}.`) : null),
      shown.length ? h("p", { class: "quiet" }, shown.join(", ")) : null,
      places.length ? placeButtons(places, code) : null);
  }
  const FIRST = 3;
  const boxes = Object.entries(survey.ledger.reasons ?? {}).map(([code, count]) => {
    const bad = survey.bad_rows.filter((row) => row.code === code);
    const why = [...new Set(bad.map((row) => row.message))];
    return finding("bad", code, count, null, why.slice(0, FIRST).join("; ") + (why.length > FIRST ? "; …" : ""), "Convert puts bad rows into the quarantine", bad.map((row) => row.place), {});
  });
  boxes.push(...survey.findings.map((found) => finding(found.severity, found.code, found.count, found.share, found.message, `What to do: ${found.advice}`, found.places, found.details)));
  findings.append(...boxes.slice(0, FIRST));
  if (boxes.length > FIRST) findings.append(h("details", {}, h("summary", {}, `${counted(boxes.length - FIRST, "more finding")}`), boxes.slice(FIRST)));
  if (!boxes.length) findings.append(h("p", {}, isRead ? "Nothing was found." : "No type fits, so nothing was looked for."));

  /* ---- lengths ---- */
  const lengths = byId("lengths-body");
  let limit = null;
  const joint = survey.lengths.filter((figures) => figures.name.includes("+"));
  const main = joint.length ? joint : survey.lengths.slice(0, 1);
  const points = [...new Set(main.flatMap((figures) => (curves[figures.name] ?? []).map((point) => point[0])))].sort((a, b) => a - b);
  const redraw = [];

  function beyond(figures, length) {
    const curve = curves[figures.name];
    let low = 0, high = curve.length - 1;
    if (length < curve[0][0]) return [length, figures.rows, figures.tokens - length * figures.rows];
    while (low < high) { const middle = (low + high + 1) >> 1; if (curve[middle][0] <= length) low = middle; else high = middle - 1; }
    // No length occurs between two points, unless there are more lengths than points.
    return [length, curve[low][1], curve[low][2] - (length - curve[low][0]) * curve[low][1]];
  }
  /* Sides that are compared share their bins and one axis: the first as bars, the second as a line over them. */
  const AXES = [["prompt+chosen", "prompt+rejected"], ["chosen", "rejected"]];
  function groups(every) {
    const by = new Map(every.map((figures) => [figures.name, figures]));
    const pairs = AXES.filter((names) => names.every((name) => by.has(name)));
    const second = new Map(pairs.map(([one, other]) => [one, by.get(other)]));
    const seconds = new Set(pairs.map((names) => names[1]));
    return every.filter((figures) => !seconds.has(figures.name)).map((figures) => second.has(figures.name) ? [figures, second.get(figures.name)] : [figures]);
  }
  const spread = (figures) => `p50 ${number(figures.p50)}, p95 ${number(figures.p95)}, p99 ${number(figures.p99)}, max ${number(figures.max)}`;
  function histogram(group) {
    const W = 560, H = 150, bottom = 24, [first, second] = group, bins = first.bins;
    const start = bins[0].start, last = bins[bins.length - 1].end;
    const log = first.logarithmic, from = log ? Math.log(Math.max(start, 1)) : start, to = log ? Math.log(last) : last;
    const x = (value) => W * ((log ? Math.log(Math.max(value, 1)) : value) - from) / Math.max(to - from, 1e-9);
    const most = Math.max(...group.flatMap((figures) => figures.bins.map((bin) => bin.rows)));
    const y = (rows) => H - (rows ? Math.max(2, (H - 6) * rows / most) : 0);
    const label = group.map((figures) => `${figures.name}: ${counted(figures.rows, "row")}, ${spread(figures)} ${survey.unit}`).join("; ");
    const svg = s("svg", { viewBox: `0 0 ${W} ${H + bottom}`, role: "img", "aria-label": label });
    const bars = bins.map((bin) => {
      const bar = s("rect", { class: "bin", x: x(bin.start), y: y(bin.rows), width: Math.max(1, x(bin.end) - x(bin.start) - 1), height: H - y(bin.rows) });
      svg.append(bar);
      return [bar, bin];
    });
    if (second) {
      const steps = second.bins.flatMap((bin) => [`${x(bin.start)},${y(bin.rows)}`, `${x(bin.end)},${y(bin.rows)}`]);
      svg.append(s("polyline", { class: "over-line", points: [`${x(start)},${H}`, ...steps, `${x(last)},${H}`].join(" ") }));
    }
    bins.forEach((bin, k) => {
      const rows = group.map((figures) => `${group.length > 1 ? `${figures.name} ` : ""}${counted(figures.bins[k].rows, "row")}`).join(", ");
      svg.append(s("rect", { class: "hover", x: x(bin.start), y: 0, width: Math.max(1, x(bin.end) - x(bin.start)), height: H },
        s("title", {}, `${number(bin.start)}–${number(bin.end - 1)}: ${rows}`)));
    });
    svg.append(s("line", { class: "axis", x1: 0, x2: W, y1: H, y2: H }));
    const ticks = new Map();
    for (let i = 0; i <= 4; i++) {
      const value = Math.round(log ? Math.exp(from + (to - from) * i / 4) : from + (to - from) * i / 4);
      ticks.set(value, s("text", { class: i % 2 ? "odd" : "even", x: W * i / 4, y: H + 18, "text-anchor": i === 0 ? "start" : i === 4 ? "end" : "middle" }, number(value)));
    }
    svg.append(...ticks.values());
    const line = s("line", { class: "limit", y1: 0, y2: H, x1: -9, x2: -9 });
    svg.append(line);
    const cuts = group.map((figures) => [figures, h("p", { class: "quiet" })]);
    redraw.push(() => {
      for (const [bar, bin] of bars) bar.classList.toggle("over", limit !== null && bin.start > limit);
      const at = limit === null ? -9 : Math.min(Math.max(x(limit), 0), W);
      line.setAttribute("x1", at); line.setAttribute("x2", at);
      for (const [figures, cut] of cuts) {
        const there = limit === null || !curves[figures.name] ? null : beyond(figures, limit);
        cut.textContent = there === null ? "" : `${group.length > 1 ? `${figures.name}: ` : ""}${counted(there[1], "row")} (${percent(there[1] / figures.rows)}) ${there[1] === 1 ? "is" : "are"} longer; ${units(there[2])} (${percent(there[2] / Math.max(figures.tokens, 1))}) ${there[2] === 1 ? "is" : "are"} beyond`;
      }
    });
    const key = (figures, k) => h("div", {}, h("span", { class: `key ${k ? "over-line" : "bin"}`, "aria-hidden": "true" }), h("strong", {}, figures.name), ` ${spread(figures)}`);
    const heads = group.length > 1 ? group.map((figures) => figures.name) : ["rows"];
    return h("figure", {}, h("figcaption", {}, group.map(key), log ? h("div", {}, "log scale") : null), svg, cuts.map(([, cut]) => cut),
      h("details", {}, h("summary", {}, "as a table"), table(["from", "to", ...heads], bins.map((bin, k) => [number(bin.start), number(bin.end - 1), ...group.map((figures) => number(figures.bins[k].rows))]), [0, 1, 2, 3])));
  }
  if (survey.lengths.length) {
    lengths.append(h("p", {}, `Exact lengths in ${survey.unit} of ${counted(survey.lengths_rows, "row")}.`));
    if (points.length) {
      const slider = h("input", { type: "range", id: "limit", min: 0, max: points.length, step: 1, "aria-describedby": "limit-text" });
      slider.value = points.length;
      const exact = h("input", { type: "number", id: "limit-number", min: 1, "aria-label": "Maximum length" });
      const text = h("output", { id: "limit-text", for: "limit" });
      const set = (value, from) => {
        limit = value;
        text.textContent = limit === null || limit >= points[points.length - 1] ? "nothing is cut" : `cut at ${units(limit)}`;
        slider.setAttribute("aria-valuetext", text.textContent);
        if (from !== slider) slider.value = limit === null ? points.length : points.findIndex((p) => p >= limit) < 0 ? points.length : points.findIndex((p) => p >= limit);
        if (from !== exact) exact.value = limit ?? points[points.length - 1];
        for (const draw of redraw) draw();
        rows.filterSoon();
      };
      slider.addEventListener("input", () => set(Number(slider.value) >= points.length ? null : points[Number(slider.value)], slider));
      exact.addEventListener("input", () => set(exact.value === "" || Number(exact.value) < 1 ? null : Math.floor(Number(exact.value)), exact));
      exact.addEventListener("change", () => { if (limit === null) exact.value = points[points.length - 1]; });
      exact.value = points[points.length - 1];
      text.textContent = "nothing is cut";
      slider.setAttribute("aria-valuetext", text.textContent);
      lengths.append(h("div", { class: "slider" }, h("label", { for: "limit" }, "Maximum length"), slider, exact, text));
    }
    lengths.append(h("div", { class: "figures" }, groups([...main, ...survey.lengths.filter((figures) => !main.includes(figures))]).map(histogram)));
  } else lengths.append(h("p", {}, "There are no lengths."));
  if (survey.cutting) {
    const cutting = survey.cutting;
    lengths.append(h("h3", {}, "What a maximum length costs"),
      h("p", { class: "quiet" }, `The smallest length that drops at most ${percent(cutting.loss_budget, 2)} of the rows is ${number(cutting.smallest_max_length)}.`),
      table(["max length", "way", "rows lost or cut", "tokens lost", "sides equal", "emptied", "without end of turn"],
        cutting.cuts.map((cut) => [number(cut.max_length), cut.way, `${number(cut.rows_lost + cut.rows_cut)} (${percent((cut.rows_lost + cut.rows_cut) / cutting.rows)})`,
          `${number(cut.tokens_lost)} (${percent(cut.tokens_lost / Math.max(cutting.tokens, 1))})`, number(cut.rows_equal), number(cut.rows_empty), number(cut.rows_without_end)]), [0, 2, 3, 4, 5, 6]));
  }

  /* ---- masks ---- */
  const masks = byId("masks-body");
  if (survey.masks) {
    const m = survey.masks;
    masks.append(h("p", {}, `${number(m.trained)} of ${number(m.tokens)} tokens (${percent(m.trained / Math.max(m.tokens, 1))}) in ${counted(m.rows, "row")} at even distances: ${m.why.join("; ")}.`),
      h("p", { class: "quiet" }, `Trained share of a sequence: p5 ${percent(m.share_p5)}, p50 ${percent(m.share_p50)}, p95 ${percent(m.share_p95)}.`),
      table(["role", "tokens", "trained"], m.roles.map((role) => [role.role, number(role.tokens), percent(role.trained / Math.max(role.tokens, 1))]), [1, 2]),
      h("h3", {}, "By kind"),
      h("p", { class: "quiet" }, "A model that answers writes content, reasoning, tool calls and ends of turns; all else only the template writes."),
      h("div", { class: "kinds", role: "img", "aria-label": m.kinds.filter((kind) => kind.trained).map((kind) => `${KIND_WORDS[kind.kind]} ${percent(kind.trained / m.trained)}`).join(", ") },
        h("span", { class: "text" }, m.kinds.filter((kind) => kind.trained).map((kind) => h("span", { class: `t k-${kind.kind}`, title: `${KIND_WORDS[kind.kind]} ${percent(kind.trained / m.trained)}` }, `${KIND_WORDS[kind.kind]} ${percent(kind.trained / m.trained)}`)))),
      table(["kind", "tokens", "trained", "of trained tokens"], m.kinds.map((kind) => [KIND_WORDS[kind.kind], number(kind.tokens), percent(kind.trained / Math.max(kind.tokens, 1)), percent(kind.trained / Math.max(m.trained, 1))]), [1, 2, 3]));
    for (const [note, count] of Object.entries(m.notes)) masks.append(h("p", { class: "note" }, `${counted(count, "sequence")}: ${note}`));
  } else masks.append(h("p", {}, "Masks need a tokenizer and a template."));
  if (survey.anchors) {
    const a = survey.anchors;
    masks.append(h("h3", {}, "Windows that strided EBFT generates anew"),
      h("p", { class: "quiet" }, `${Object.entries(a.rule).map(([key, value]) => `${key} ${value}`).join(", ")}.`),
      h("p", {}, `${counted(a.anchors, "anchor")} in ${counted(a.rows, "row")}; a row: p50 ${number(a.per_row.p50)}, p95 ${number(a.per_row.p95)}, max ${number(a.per_row.max)}; rows without any: ${number(a.rows_without)}.`),
      h("p", {}, `${number(a.generated)} of ${number(a.tokens)} tokens (${percent(a.generated / Math.max(a.tokens, 1))}) lie in a window.`));
  }

  /* ---- columns ---- */
  byId("columns-body").append(table(["source", "kind", "rows", "split", "types that fit, best first"],
    survey.sources.map((source) => [source.path, source.kind, number(source.rows), source.split,
      source.types.slice(0, 4).map((guess) => `${guess.type} → ${guess.table} (${guess.reason})`).join("; ") || "none"]), [2]));
  byId("columns-body").append(
    h("h3", {}, "What the columns hold"),
    h("p", { class: "quiet" }, survey.columns_rows >= survey.rows_read ? "Of all rows." : `Of ${counted(survey.columns_rows, "row")} that ${survey.columns_rows === 1 ? "was" : "were"} looked at.`),
    table(["column", "holds", "null or absent"], survey.columns.map((column) => [column.name,
      Object.entries(column.kinds).map(([kind, count]) => `${kind} ${number(count)}`).join(", ") || "nothing", percent(column.null_share)]), [2]));

  /* ---- rows ---- */
  const { ROW, CODES, SIZES } = ENTRY;
  const longest = index.map((entry) => Math.max(0, ...entry[SIZES].map((size) => size[0])));
  const share = index.map((entry) => Math.min(1, ...entry[SIZES].map((size) => size[1] / Math.max(size[0], 1))));
  byId("rows-how").textContent = `${how}.`;
  const codes = [...new Set(index.flatMap((entry) => entry[CODES]))].sort();
  byId("by-code").append(...codes.map((code) => h("option", { value: code }, code)));
  const { item, draw } = rowView({ detail: byId("row"), limit: () => limit });
  async function showFinding(code, row) {
    byId("search").value = ""; byId("at-least").value = ""; byId("at-most").value = "";
    byId("only-cut").checked = false; byId("by-code").value = code;
    begin();
    await rows.filter().finally(end);
    const i = rows.visible().find((k) => index[k][ROW] === row);
    byId("rows").scrollIntoView();
    if (i !== undefined) await rows.choose(i);
    byId("list").focus({ preventScroll: true });
  }
  function passes(i) {
    const code = byId("by-code").value, least = byId("at-least").value, most = byId("at-most").value;
    return (!code || index[i][CODES].includes(code)) && (least === "" || longest[i] >= Number(least)) &&
      (most === "" || longest[i] <= Number(most)) && (!byId("only-cut").checked || (limit !== null && longest[i] > limit));
  }
  function sort(found) {
    const order = byId("order").value;
    if (order === "long") found.sort((a, b) => longest[b] - longest[a] || a - b);
    if (order === "short") found.sort((a, b) => longest[a] - longest[b] || a - b);
    if (order === "trained") found.sort((a, b) => share[a] - share[b] || a - b);
  }
  const rows = page.browser({
    count: index.length, noun: "shown row", controls: ["search", "by-code", "at-least", "at-most", "order", "only-cut"],
    passes, texts: (row) => row.sides.map((side) => side.text), sort,
    item: (i) => item(index[i]), draw: (i, row) => draw(index[i], row),
  });
})();
