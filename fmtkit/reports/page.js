"use strict";
/* What the pages of fmtkit share: how data becomes nodes, the theme, and a list of rows beside the chosen one. */
const page = (() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const byId = (id) => document.getElementById(id);
  const CHUNK = 100, ITEM = 45, SVG = "http://www.w3.org/2000/svg";
  const number = (n) => n.toLocaleString("en-US");
  const counted = (n, noun) => `${number(n)} ${noun}${n === 1 ? "" : "s"}`;
  const percent = (n, digits = 1) => `${(100 * n).toFixed(digits)} %`;

  // Everything from the data becomes a text node: there is no other way into the page.
  function h(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat()) if (child !== null && child !== undefined && child !== false) element.append(child);
    return element;
  }
  function s(tag, attributes = {}, ...children) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }
  function table(heads, lines, numeric = []) {
    // On a narrow window each line is a card (page.css): roles and labels say what the cells were.
    const cell = (tag, text, i) => h(tag, { class: numeric.includes(i) ? "n" : null, scope: tag === "th" ? "col" : null,
      role: tag === "th" ? "columnheader" : "cell", "data-label": tag === "td" ? heads[i] : null }, h("span", {}, text));
    return h("table", { role: "table" },
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads.map((text, i) => cell("th", text, i)))),
      h("tbody", { role: "rowgroup" }, lines.map((line) => h("tr", { role: "row" }, line.map((text, i) => cell("td", text, i))))));
  }

  /* ---- theme ---- */
  const theme = byId("theme"), system = window.matchMedia("(prefers-color-scheme: dark)");
  function setTheme(dark) {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    theme.setAttribute("aria-pressed", String(dark));
    theme.textContent = dark ? "Light" : "Dark";
    theme.setAttribute("aria-label", dark ? "Use the light theme" : "Use the dark theme");
  }
  setTheme(system.matches);
  system.addEventListener("change", (event) => setTheme(event.matches));
  theme.addEventListener("click", () => setTheme(document.documentElement.dataset.theme !== "dark"));

  // Whoever waits for the page (a test, a screenshot) sees when there is nothing left to do.
  let pending = 0;
  function begin() { pending++; delete document.documentElement.dataset.ready; }
  function end() { if (!--pending) document.documentElement.dataset.ready = "yes"; }

  /* ---- text that nothing hides in ---- */
  const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]/;
  const name = (c) => `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
  const clean = (text) => [...text].map((c) => CONTROL.test(c) ? name(c) : c).join("");
  // Control characters are shown by their number: none of them may turn or hide text.
  function textNodes(text) {
    if (!CONTROL.test(text)) return [text];
    const out = []; let run = "";
    for (const c of text) {
      if (!CONTROL.test(c)) { run += c; continue; }
      if (run) out.push(run);
      run = ""; out.push(h("span", { class: "control" }, name(c)));
    }
    return run ? [...out, run] : out;
  }

  /* ---- rows: unpacking ---- */
  const unpacked = new Map();
  async function unpack(chunk) {
    if (!unpacked.has(chunk)) unpacked.set(chunk, (async () => {
      const packed = atob(byId(`chunk-${chunk}`).textContent);
      const bytes = new Uint8Array(packed.length);
      for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      return JSON.parse(await new Response(stream).text());
    })());
    return unpacked.get(chunk);
  }

  /* ---- rows: filters, a list, and the chosen row ----
     `passes(i)` says whether a row is left by the controls, `texts(row)` what a search looks at, `sort(found)` puts
     indices in order, `item(i)` returns the two lines of the list, `draw(i, row)` the nodes of the chosen row. */
  function browser({ count, noun, controls, passes, texts, sort, item, draw }) {
    let visible = Array.from({ length: count }, (_, i) => i), chosen = -1, filtering = 0;
    const list = byId("list"), spacer = byId("spacer"), status = byId("status"), detail = byId("row");

    async function filter() {
      const mine = ++filtering, words = byId("search").value.toLowerCase();
      let found = Array.from({ length: count }, (_, i) => i).filter(passes);
      if (words) {
        const hits = [], chunks = new Set(found.map((i) => Math.floor(i / CHUNK))), wanted = new Set(found);
        for (const chunk of chunks) {
          const rows = await unpack(chunk);
          if (mine !== filtering) return;
          rows.forEach((row, k) => {
            const i = chunk * CHUNK + k;
            if (wanted.has(i) && texts(row).some((text) => text.toLowerCase().includes(words))) hits.push(i);
          });
          status.textContent = `searching, ${counted(hits.length, "row")} so far`;
        }
        found = hits;
      }
      sort(found);
      visible = found;
      status.textContent = `${number(found.length)} of ${counted(count, noun)}`;
      spacer.style.height = `${found.length * ITEM}px`;
      await (visible.includes(chosen) ? show() : choose(visible[0] ?? -1, false));
      drawList();
    }
    let timer = 0;
    function filterSoon() {
      if (!timer) begin();
      clearTimeout(timer);
      timer = setTimeout(() => { timer = 0; filter().finally(end); }, 120);
    }

    /* ---- rows: the list; only what is in sight exists ---- */
    function drawList() {
      const first = Math.max(0, Math.floor(list.scrollTop / ITEM) - 5);
      const last = Math.min(visible.length, first + Math.ceil(list.clientHeight / ITEM) + 10);
      const items = [];
      for (let k = first; k < last; k++) {
        const i = visible[k], [meta, title] = item(i);
        const option = h("div", { class: "item", role: "option", id: `item-${i}`, "aria-selected": String(i === chosen), "aria-setsize": visible.length, "aria-posinset": k + 1, onclick: () => choose(i) },
          h("div", { class: "meta" }, meta), h("div", {}, clean(title) || "(empty)"));
        option.style.top = `${k * ITEM}px`;
        items.push(option);
      }
      spacer.replaceChildren(...items);
      if (chosen >= 0) list.setAttribute("aria-activedescendant", `item-${chosen}`);
    }
    list.addEventListener("scroll", () => requestAnimationFrame(drawList));
    new ResizeObserver(drawList).observe(list);

    function choose(i, scroll = true) {
      chosen = i;
      const k = visible.indexOf(i);
      if (scroll && k >= 0) {
        if (k * ITEM < list.scrollTop) list.scrollTop = k * ITEM;
        if ((k + 1) * ITEM > list.scrollTop + list.clientHeight) list.scrollTop = (k + 1) * ITEM - list.clientHeight;
      }
      drawList();
      begin();
      return show().finally(end);
    }
    function move(step) {
      const k = visible.indexOf(chosen);
      const next = Math.min(Math.max(k + step, 0), visible.length - 1);
      if (next >= 0) choose(visible[next]);
    }
    const screen = () => Math.max(1, Math.floor(list.clientHeight / ITEM) - 1);
    list.addEventListener("keydown", (event) => {
      const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: screen(), PageUp: -screen(), Home: -visible.length, End: visible.length };
      if (event.key in steps) { event.preventDefault(); move(steps[event.key]); }
      if (event.key === "Enter") { event.preventDefault(); detail.focus(); }
    });
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
      if (event.key === "j") move(1);
      if (event.key === "k") move(-1);
      if (event.key === "/") { event.preventDefault(); byId("search").focus(); }
    });
    async function show() {
      const i = chosen;
      if (i < 0) { detail.replaceChildren(h("p", {}, count ? "No row is left by these filters." : "There are no rows.")); return; }
      const rows = await unpack(Math.floor(i / CHUNK));
      if (i === chosen) detail.replaceChildren(...draw(i, rows[i % CHUNK]));
    }

    for (const id of controls) byId(id).addEventListener("input", filterSoon);
    byId("clear").addEventListener("click", () => {
      for (const id of controls) {
        const control = byId(id);
        if (control.tagName === "SELECT") control.selectedIndex = 0;
        else if (control.type === "checkbox") control.checked = false;
        else control.value = "";
      }
      filterSoon();
    });
    begin();
    filter().finally(end);
    return { filter, filterSoon, choose, visible: () => visible };
  }
  return { read, byId, number, counted, percent, h, s, table, clean, textNodes, begin, end, browser };
})();
