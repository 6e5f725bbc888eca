/* Rows that a server reads when they are asked for: a page of the list at a time, and the chosen row. */
(() => {
  const { read, byId, number, percent, h, clean, begin, end } = page;
  const data = read("data");
  const { ROW } = ENTRY;
  const PAGE_ROWS = 50, FILTERS = { search: "text", "by-role": "role", "by-code": "code", "at-least": "least", "at-most": "most", unit: "unit" };
  const list = byId("list"), detail = byId("row"), status = byId("status"), problem = byId("problem");
  const { item, draw } = rowView({ detail, limit: () => null });

  /* ---- what is served ---- */
  const names = data.sources;
  byId("title").textContent = names.length > 3 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ");
  document.title = `${names[0] ?? "nothing"} – fmtkit inspect`;
  byId("subtitle").textContent = `${data.type} → ${data.table}, ${number(data.bytes)} bytes; rows are read when they are shown`;
  byId("notes").append(...data.notes.map((note) => h("p", { class: "quiet" }, note)));
  byId("by-role").append(...data.roles.map((role) => h("option", { value: role }, role)));
  byId("by-code").append(...data.codes.map((code) => h("option", { value: code }, code)));
  if (data.has_tokens) byId("unit").append(h("option", { value: "tokens" }, "tokens"));
  byId("source").append(...names.map((name, i) => h("option", { value: i }, name)));
  const asLine = () => { byId("in-source").hidden = names.length < 2 || byId("jump-to").value !== "line"; };
  byId("jump-to").addEventListener("input", asLine);
  asLine();

  /* ---- asking ---- */
  let asking = 0;
  async function ask(what, query) {
    let answer;
    try {
      answer = await fetch(`${what}?${new URLSearchParams(query)}`, { credentials: "omit", cache: "no-store" });
    } catch {
      throw new Error("the server does not answer: it has ended; start `fmtkit inspect --serve` again");
    }
    const found = await answer.json();
    if (found.error) throw new Error(found.error);
    return found;
  }
  function say(error) {
    problem.hidden = !error;
    problem.textContent = error ? clean(error.message) : "";
  }
  async function trying(work) {
    begin();
    try { await work(); } catch (error) { say(error); } finally { end(); }
  }

  /* ---- a page of the list ---- */
  let entries = [], chosen = -1, at = 0, next = null;
  const filters = () => Object.fromEntries(Object.entries(FILTERS).map(([id, name]) => [name, byId(id).value]).filter(([, value]) => value !== ""));
  const isFiltered = () => Object.keys(filters()).some((name) => name !== "unit");
  function tell(found, state) {
    const all = found.all === null ? `at least ${number(found.known)}` : number(found.all);
    const rows = entries.length ? `rows ${number(entries[0][ROW])} to ${number(entries[entries.length - 1][ROW])}` : "no rows";
    const counted = isFiltered() ? `${number(entries.length)} that pass, ${rows}` : rows;
    status.textContent = `${counted} of ${all}${state}`;
  }
  /* Ask until the page is full or there is no more: an answer takes about a second at most. */
  async function load(where, back = false) {
    const mine = ++asking;
    say(null);
    byId("stop").hidden = false;
    let from = where, found = [], answer;
    try {
      do {
        answer = await ask("rows", { ...filters(), [back ? "before" : "at"]: from });
        if (mine !== asking) return;
        found = back ? [...answer.rows, ...found] : [...found, ...answer.rows];
        from = answer.again;
        if (from !== undefined) status.textContent = `reading, ${percent(answer.done, 0)}; ${number(found.length)} rows so far`;
      } while (from !== undefined && found.length < PAGE_ROWS);
    } finally {
      if (mine === asking) byId("stop").hidden = true;
    }
    show(found, back, where, from ?? answer.next);
    tell(answer, "");
  }
  function show(found, back, where, after) {
    if (back && !found.length) { status.textContent = "there are no rows before"; return; }
    entries = back ? found.slice(-PAGE_ROWS) : found.slice(0, PAGE_ROWS);
    next = back ? where : found.length > PAGE_ROWS ? entries[PAGE_ROWS - 1][ROW] + 1 : after;
    at = back ? entries[0][ROW] : where;
    byId("next").disabled = next === null;
    byId("previous").disabled = at === 0;
    list.replaceChildren(...entries.map((entry, k) => {
      const [meta, title] = item(entry);
      return h("div", { class: "item", role: "option", id: `item-${k}`, "aria-selected": "false", onclick: () => trying(() => choose(k)) },
        h("div", { class: "meta" }, meta), h("div", {}, clean(title) || "(empty)"));
    }));
    if (!entries.length) { chosen = -1; list.removeAttribute("aria-activedescendant"); detail.replaceChildren(h("p", {}, isFiltered() ? "No row passes these filters." : "There are no rows.")); return; }
    trying(() => choose(0));
  }
  async function choose(k) {
    chosen = k;
    for (const one of list.children) one.setAttribute("aria-selected", String(one.id === `item-${k}`));
    list.setAttribute("aria-activedescendant", `item-${k}`);
    list.children[k].scrollIntoView({ block: "nearest" });
    const wanted = entries[k][ROW], { entry, row } = await ask("row", { row: wanted });
    if (entries[chosen]?.[ROW] === wanted) detail.replaceChildren(h("p", { class: "quiet" }, `row ${number(wanted)}`), ...draw(entry, row));
  }
  const forward = (where) => trying(() => load(where));
  const nextPage = () => { if (next !== null) forward(next); };
  const previousPage = () => { if (at > 0) trying(() => load(entries.length ? entries[0][ROW] : at, true)); };
  function move(step) {
    const k = chosen + step;
    if (k >= entries.length) nextPage();
    else if (k < 0) previousPage();
    else trying(() => choose(k));
  }
  async function jump() {
    const wanted = byId("jump-number").value;
    if (byId("jump-to").value === "row") return load(Number(wanted));
    const mine = ++asking;
    let answer = { again: wanted };
    while (answer.again !== undefined) {
      answer = await ask("line", { source: byId("source").value, line: wanted });
      if (mine !== asking) return;
      if (answer.again !== undefined) status.textContent = `counting lines, ${percent(answer.done, 0)}`;
    }
    return load(answer.at);
  }

  /* ---- controls ---- */
  let timer = 0;
  function filterSoon() {
    if (!timer) begin();
    clearTimeout(timer);
    timer = setTimeout(() => { timer = 0; forward(0); end(); }, 250);
  }
  for (const id of Object.keys(FILTERS)) byId(id).addEventListener("input", filterSoon);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("clear").addEventListener("click", () => { byId("filters").reset(); filterSoon(); });
  byId("jump").addEventListener("submit", (event) => { event.preventDefault(); trying(jump); });
  byId("first").addEventListener("click", () => forward(0));
  byId("next").addEventListener("click", nextPage);
  byId("previous").addEventListener("click", previousPage);
  byId("stop").addEventListener("click", () => { asking++; byId("stop").hidden = true; status.textContent += ", stopped"; });
  list.addEventListener("keydown", (event) => {
    const steps = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in steps) { event.preventDefault(); move(steps[event.key]); }
    if (event.key === "Enter") { event.preventDefault(); detail.focus(); }
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    if (event.key === "j") move(1);
    if (event.key === "k") move(-1);
    if (event.key === "n") nextPage();
    if (event.key === "p") previousPage();
    if (event.key === "/") { event.preventDefault(); byId("search").focus(); }
  });
  forward(0);
})();
