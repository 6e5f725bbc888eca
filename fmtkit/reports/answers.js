(() => {
  const { read, byId, number, counted, h, table, textNodes } = page;
  const { title, how, unit, names, rows: index } = read("data");
  const STEP = 0, SIZE = 1, ADVANTAGE = 2, REWARD = 3, REWARDS = 4, CUT = 5, MASKED = 6, GROUP = 7, TITLE = 8;
  const figure = (value) => value === null ? "none" : Number(value.toPrecision(4)).toString();
  const groups = new Map();
  index.forEach((entry, i) => groups.set(entry[GROUP], [...(groups.get(entry[GROUP]) ?? []), i]));

  /* Samples of a run that learns from given replies have no rewards. */
  const rewarded = names.length > 0;

  document.title = `${title} – answers`;
  byId("title").textContent = title;
  byId("subtitle").textContent = `${counted(index.length, "answer")} of a run${rewarded ? ` with ${names.length === 1 ? "its reward" : "their rewards"}` : ""}`;
  byId("rows-how").textContent = `They are ${how}.`;

  /* What answers are chosen and ordered by: [name, value of an entry or null]. */
  const values = [...(rewarded ? [["reward", (entry) => entry[REWARD]],
    ...(names.length > 1 ? names.map((name, k) => [`reward ${name}`, (entry) => entry[REWARDS][k]]) : []),
    ["advantage", (entry) => entry[ADVANTAGE]],
    ["size of the advantage", (entry) => entry[ADVANTAGE] === null ? null : Math.abs(entry[ADVANTAGE])]] : []),
    [`length in ${unit}`, (entry) => entry[SIZE]]];
  if (!rewarded) byId("state").querySelectorAll("option").forEach((one) => ["", "cut"].includes(one.value) || one.remove());
  byId("value").append(...values.map(([name], k) => h("option", { value: k }, name)));
  const valueOf = (i) => values[Number(byId("value").value)][1](index[i]);

  const STATES = {
    signal: (entry) => entry[ADVANTAGE] !== null && entry[ADVANTAGE] !== 0 && entry[MASKED] === null,
    none: (entry) => entry[ADVANTAGE] === 0,
    masked: (entry) => entry[MASKED] !== null,
    cut: (entry) => entry[CUT],
  };
  function passes(i) {
    const [least, most, from, to] = ["at-least", "at-most", "from", "to"].map((id) => byId(id).value), state = byId("state").value;
    const value = valueOf(i), step = index[i][STEP];
    return (least === "" || (value !== null && value >= Number(least))) && (most === "" || (value !== null && value <= Number(most))) &&
      (from === "" || step >= Number(from)) && (to === "" || step <= Number(to)) && (!state || STATES[state](index[i]));
  }
  function sort(found) {
    const order = byId("order").value;
    if (order === "newest") found.sort((a, b) => index[b][STEP] - index[a][STEP] || a - b);
    if (order === "oldest") return;
    const sign = order === "highest" ? -1 : 1, missing = Infinity;
    // An answer without the value comes last in either order.
    const key = (i) => { const value = valueOf(i); return value === null ? missing : sign * value; };
    if (order === "highest" || order === "lowest") found.sort((a, b) => (key(a) > key(b)) - (key(a) < key(b)) || a - b);
  }
  const marks = (entry) => [entry[MASKED] === null ? null : "masked", entry[CUT] ? "cut off" : null].filter(Boolean).join(", ");
  const flags = (entry) => [entry[MASKED] === null ? null : `masked: ${entry[MASKED]}`, entry[CUT] ? "cut off" : null].filter(Boolean).join(", ");
  function item(i) {
    const entry = index[i], advantage = entry[ADVANTAGE] === null ? "" : ` · advantage ${figure(entry[ADVANTAGE])}`;
    const reward = rewarded ? ` · reward ${figure(entry[REWARD])}` : "";
    return [[`step ${number(entry[STEP])}${reward}${advantage} · ${counted(entry[SIZE], unit.slice(0, -1))} `,
      marks(entry) ? h("span", { class: "flag" }, marks(entry)) : null], entry[TITLE]];
  }

  function turns(said) {
    return said.map(([role, text, more]) => h("div", {}, role ? h("h4", {}, ...textNodes(role)) : null,
      h("div", { class: "text" }, ...textNodes(text)),
      more ? h("p", { class: "note" }, `${counted(more, "more character")} ${more === 1 ? "is" : "are"} in completions.parquet alone`) : null));
  }
  function draw(i, row) {
    const entry = index[i], group = groups.get(entry[GROUP]), place = group.indexOf(i);
    const facts = [...(rewarded ? [["reward", figure(entry[REWARD])], ["advantage", figure(entry[ADVANTAGE])]] : []), ["length", counted(entry[SIZE], unit.slice(0, -1))], ...Object.entries(row.extra)];
    return [
      h("h3", {}, `Step ${number(entry[STEP])}, answer ${place + 1} of ${group.length} to this prompt`),
      flags(entry) ? h("p", { class: "note" }, ...textNodes(flags(entry))) : "",
      h("dl", { class: "details" }, facts.flatMap(([name, text]) => [h("dt", {}, ...textNodes(name)), h("dd", {}, ...textNodes(text))])),
      names.length > 1 ? table(["reward function", "reward"], names.map((name, k) => [name, figure(entry[REWARDS][k])]), [1]) : "",
      rewarded && group.length > 1 ? h("p", { class: "places" }, "Rewards of the group: ", group.map((other) =>
        h("button", { type: "button", "aria-current": other === i ? "true" : null, "aria-label": `answer ${group.indexOf(other) + 1}, reward ${figure(index[other][REWARD])}`, onclick: () => answers.choose(other) }, figure(index[other][REWARD])))) : "",
      h("div", { class: "sides" }, h("section", { "aria-label": "prompt" }, h("h3", {}, "Prompt"), turns(row.prompt)),
        h("section", { "aria-label": "answer" }, h("h3", {}, "Answer"), turns(row.completion))),
    ];
  }
  const answers = page.browser({
    count: index.length, noun: "answer", controls: ["search", "value", "at-least", "at-most", "from", "to", "state", "order"],
    passes, texts: (row) => [...row.prompt, ...row.completion].map((turn) => turn[1]), sort, item, draw,
  });
})();
