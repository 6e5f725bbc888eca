/* A row as pages show it: its line in a list, and its texts with the tokens that are trained. */
const ENTRY = { ROW: 0, SOURCE: 1, SOURCE_ROW: 2, LINE: 3, TITLE: 4, CODES: 5, SIZES: 6 };
/* In the order of fmtkit.masks.origins.KINDS; what is said of each is what the legend has. */
const KINDS = ["content", "reasoning", "tool_call", "end", "header", "generation_prompt", "pad_image", "tools", "template"];
const KIND_WORDS = {
  content: "content", reasoning: "reasoning", tool_call: "tool call", end: "end of turn", header: "beginning of a turn",
  generation_prompt: "generation prompt", pad_image: "image", tools: "tools", template: "template",
};
/* `detail` is where a row is shown; `limit()` returns the length at which rows are cut, or null. */
function rowView({ detail, limit }) {
  const { number, counted, percent, h, clean, textNodes } = page;
  const { SOURCE, SOURCE_ROW, LINE, TITLE, CODES, SIZES } = ENTRY;
  /* A picture stands before its placeholder; one without a copy says what it is. */
  const picture = ([label, source]) => source ? h("img", { class: "picture", src: source, alt: label, title: label }) : h("span", { class: "picture" }, `[${clean(label)}]`);
  function tokenText(side, images) {
    const box = h("div", { class: "text tokens" });
    let shown = 0;
    const pictures = (end) => { while (shown < side.images.length && side.images[shown] < end) box.append(picture(images[shown++])); };
    if (!side.steps.length) {
      let from = 0;
      for (const place of side.images) { box.append(...textNodes(side.text.slice(from, place))); pictures(place + 1); from = place; }
      box.append(...textNodes(side.text.slice(from)));
      return box;
    }
    const flags = new Uint8Array(side.steps.length);
    for (const [first, end] of side.trained) flags.fill(1, first, end);
    const windows = new Int32Array(side.steps.length).fill(-1), anchors = new Set();
    side.windows.forEach(([first, end], k) => { windows.fill(k, first, end); anchors.add(first); });
    const origins = [];
    for (const [end, kind, message, byTemplate] of side.kinds) {
      const words = `${KIND_WORDS[KINDS[kind]]}${message < 0 ? "" : `, message ${message}`}${byTemplate ? ", written by the template" : ""}`;
      while (origins.length < end) origins.push([`k-${KINDS[kind]}`, words]);
    }
    let at = 0, shade = 0, anchor = false;
    const most = limit();
    side.steps.forEach((step, i) => {
      anchor ||= anchors.has(i);
      if (!step) return;
      const k = windows[i];
      const window = [k < 0 ? "" : k % 2 ? "w w2" : "w", anchor ? "a" : ""];
      const title = anchor && k >= 0 ? `window ${k + 1}: tokens ${side.windows[k][0]} to ${side.windows[k][1] - 1}` : origins[i]?.[1] ?? null;
      anchor = false;
      pictures(at + step);
      const classes = [flags[i] ? `t ${origins[i]?.[0] ?? ""}`.trim() : "", (shade ^= 1) ? "" : "b", ...window, most !== null && i >= most ? "over" : ""].filter(Boolean).join(" ");
      box.append(h("span", { class: classes || null, title, "data-token": i }, ...textNodes(side.text.slice(at, at + step))));
      at += step;
    });
    if (at < side.text.length) box.append(...textNodes(side.text.slice(at)));
    return box;
  }
  function sideBox(side, entry, k, images) {
    const [size, trained] = entry[SIZES][k];
    const head = side.steps.length ? `${counted(size, "token")}, ${percent(trained / Math.max(size, 1))} trained` : counted(size, "character");
    return h("section", { "aria-label": side.side || "sequence" },
      h("h3", {}, side.side || "sequence", h("span", { class: "quiet" }, ` ${head}${side.windows.length ? `, ${counted(side.windows.length, "window")} of ${counted(side.windows[0][1] - side.windows[0][0], "token")}` : ""}`)),
      side.why ? h("p", { class: "quiet" }, side.why) : null,
      side.notes.map((note) => h("p", { class: "note" }, note)),
      side.labels ? h("p", { class: "quiet" }, `labels: ${side.labels.join(", ")}`) : null,
      tokenText(side, images),
      side.cut ? h("p", { class: "note" }, `${counted(side.cut, "more character")} of it ${side.cut === 1 ? "is" : "are"} not in this page`) : null);
  }
  let whole = false;
  /* The kinds of trained tokens of a row, in their order, each as its tokens look. */
  function kindsOf(sides) {
    const found = new Set();
    for (const side of sides) {
      let from = 0;
      for (const [end, kind] of side.kinds) {
        if (side.trained.some(([first, last]) => first < end && last > from)) found.add(kind);
        from = end;
      }
    }
    return [...found].sort((a, b) => a - b).map((kind) => KINDS[kind]);
  }
  function legend(hasWindows, kinds) {
    const boundaries = h("input", { type: "checkbox", onchange: () => { whole = !boundaries.checked; detail.classList.toggle("whole", whole); } });
    boundaries.checked = !whole;
    const jump = () => { for (const mark of detail.querySelectorAll(".sides .t:first-of-type, .sides span:not(.t) + .t")) { mark.scrollIntoView({ block: "center" }); return; } };
    return h("div", { class: "legend" },
      h("span", { class: "text tokens" }, ...(kinds.length ? [h("span", {}, "trained: "), ...kinds.map((kind) => h("span", { class: `t k-${kind}` }, KIND_WORDS[kind]))] : [h("span", { class: "t" }, "trained")]), h("span", {}, " context "), hasWindows ? h("span", { class: "w a" }, "window, from its anchor") : null, limit() !== null ? h("span", { class: "over" }, "cut off") : null),
      h("label", {}, boundaries, " token boundaries "),
      h("button", { type: "button", onclick: jump }, "Go to what is trained"));
  }
  function draw(entry, row) {
    const details = Object.entries(row.details);
    return [
      h("h3", {}, `${entry[SOURCE]}, ${entry[LINE] === null ? `row ${number(entry[SOURCE_ROW])}` : `line ${number(entry[LINE])}`}`),
      entry[CODES].length ? h("p", { class: "note" }, entry[CODES].join(", ")) : "",
      row.problem ? h("p", { class: "note" }, clean(row.problem)) : "",
      details.length ? h("dl", { class: "details" }, details.flatMap(([key, value]) => [h("dt", {}, key), h("dd", {}, clean(String(value)))])) : "",
      row.images.length && !row.sides.some((side) => side.images.length) ? h("p", { class: "pictures" }, row.images.map(picture)) : "",
      row.sides.some((side) => side.steps.length) ? legend(row.sides.some((side) => side.windows.length), kindsOf(row.sides)) : "",
      h("div", { class: "sides" }, row.sides.map((side, k) => sideBox(side, entry, k, row.images))),
    ];
  }
  function item(entry) {
    const sizes = entry[SIZES].map((size) => number(size[0])).join(" / ");
    const unit = entry[SIZES].length ? entry[SIZES][0][2] : "";
    const meta = `${entry[LINE] === null ? `row ${number(entry[SOURCE_ROW])}` : `line ${number(entry[LINE])}`}${sizes && ` · ${sizes} ${sizes === "1" ? unit.slice(0, -1) : unit}`} `;
    return [[meta, entry[CODES].length ? h("span", { class: "flag" }, entry[CODES].join(", ")) : null], entry[TITLE]];
  }
  return { item, draw };
}
