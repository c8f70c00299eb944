"use strict";
// Draws the report in #data. Every text from a run goes through textContent or an attribute, never
// through markup, so nothing that a model or a task wrote can become part of the page.
(() => {
  const D = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const tip = document.getElementById("tip");

  // --- elements ---------------------------------------------------------------------------
  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "class") node.setAttribute("class", value);
      else if (name === "tip") hint(node, value);
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (name === "css") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
      else node.setAttribute(name, value === true ? "" : String(value));
    }
    for (const child of children.flat(Infinity)) {
      if (child === null || child === undefined || child === false) continue;
      node.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return node;
  }
  const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

  function hint(node, text) {
    const say = typeof text === "function" ? text : () => text;
    const place = (event) => {
      tip.textContent = say();
      tip.hidden = false;
      const box = tip.getBoundingClientRect();
      const x = Math.min(event.clientX + 14, innerWidth - box.width - 8);
      const below = event.clientY + 18 + box.height < innerHeight;
      tip.style.left = `${Math.max(8, x)}px`;
      tip.style.top = `${below ? event.clientY + 18 : event.clientY - box.height - 10}px`;
    };
    node.addEventListener("pointermove", place);
    node.addEventListener("pointerleave", () => { tip.hidden = true; });
  }

  // --- words ------------------------------------------------------------------------------
  function num(value, digits = 3) {
    if (value === null || value === undefined) return "–";
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size < 1e-3 || size >= 1e6) return value.toExponential(1);
    return String(Number(value.toPrecision(digits)));
  }
  const signed = (value) => (value === null ? "–" : (value > 0 ? "+" : "") + num(value));
  const count = (value) => (value ?? 0).toLocaleString("en");
  function time(seconds) {
    if (seconds === null || seconds === undefined) return "–";
    if (seconds < 1) return `${(seconds * 1000).toFixed(0)} ms`;
    if (seconds < 90) return `${num(seconds)} s`;
    if (seconds < 5400) return `${(seconds / 60).toFixed(1)} min`;
    return `${(seconds / 3600).toFixed(1)} h`;
  }
  const short = (id) => (id && id.length > 16 ? `${id.slice(0, 4)}…${id.slice(-8)}` : id || "–");
  const words = (text) => String(text).replaceAll("_", " ");
  function interval(found, digits = 3) {
    if (!found) return "–";
    if (found.low === null) return `${num(found.estimate, digits)} (n = ${found.n})`;
    return `${num(found.estimate, digits)}  [${num(found.low, digits)}, ${num(found.high, digits)}]  n = ${found.n}`;
  }
  function id(text) {
    return h("button", {
      class: "id", type: "button", tip: `${text}\nclick to copy`, onclick: (event) => {
        navigator.clipboard?.writeText(text);
        event.target.classList.add("copied");
        setTimeout(() => event.target.classList.remove("copied"), 900);
      },
    }, short(text));
  }

  // --- colours ----------------------------------------------------------------------------
  const rewards = D.trials.map((t) => t.reward).filter((r) => r !== null);
  const lowest = Math.min(0, ...rewards), highest = Math.max(1, ...rewards);
  function rewardColour(reward) {
    const share = (reward - lowest) / (highest - lowest || 1);
    return share < 0.5
      ? `color-mix(in srgb, var(--bad) ${Math.round(70 - share * 100)}%, var(--warn))`
      : `color-mix(in srgb, var(--good) ${Math.round((share - 0.5) * 170 + 15)}%, var(--warn))`;
  }
  const heaviest = Math.max(1e-12, ...D.trials.map((t) => Math.abs(t.weight ?? 0)));
  function weightColour(weight) {
    if (!weight) return null;
    const alpha = 0.12 + 0.62 * Math.min(1, Math.abs(weight) / heaviest);
    return `rgba(var(--${weight > 0 ? "up" : "down"}), ${alpha.toFixed(3)})`;
  }
  const surpriseColour = (logprob) => `rgba(var(--down), ${Math.min(0.8, -logprob / 6).toFixed(3)})`;

  // --- charts -----------------------------------------------------------------------------
  function ticks(low, high, most = 4) {
    const span = high - low || 1;
    const step = 10 ** Math.floor(Math.log10(span / most));
    const wide = [1, 2, 5, 10].map((f) => f * step).find((w) => span / w <= most) || step * 10;
    const found = [];
    for (let at = Math.ceil(low / wide) * wide; at <= high + wide * 1e-6; at += wide) found.push(Math.abs(at) < wide * 1e-9 ? 0 : at);
    return found;
  }
  function curve(title, points, options = {}) {
    const usable = points.filter((p) => p.y !== null && p.y !== undefined);
    if (!usable.length) return null;
    const W = 360, H = options.height || 190, left = 46, right = 8, top = 8, bottom = 22;
    const all = usable.flatMap((p) => [p.y, p.low ?? p.y, p.high ?? p.y]);
    let low = Math.min(...all), high = Math.max(...all);
    if (options.zero) { low = Math.min(0, low); high = Math.max(options.one ? 1 : 0, high); }
    if (high === low) { const pad = Math.abs(high) * 0.1 || 1; low -= pad; high += pad; }
    const first = usable[0].x, last = usable.at(-1).x;
    const X = (x) => left + (last === first ? 0.5 : (x - first) / (last - first)) * (W - left - right);
    const Y = (y) => top + (1 - (y - low) / (high - low)) * (H - top - bottom);
    const parts = ticks(low, high).flatMap((at) => [
      s("line", { class: "gridline", x1: left, x2: W - right, y1: Y(at), y2: Y(at) }),
      s("text", { x: left - 6, y: Y(at) + 3.5, "text-anchor": "end" }, num(at)),
    ]);
    for (const at of ticks(first, last, 6).filter(Number.isInteger)) parts.push(s("text", { x: X(at), y: H - 6, "text-anchor": "middle" }, at));
    const banded = usable.filter((p) => p.low !== null && p.low !== undefined);
    if (banded.length > 1) {
      const edge = [...banded.map((p) => [X(p.x), Y(p.high)]), ...banded.toReversed().map((p) => [X(p.x), Y(p.low)])];
      parts.push(s("polygon", { class: "band", points: edge.map((p) => p.join(",")).join(" ") }));
    } else for (const p of banded) parts.push(s("line", { class: "whisker", x1: X(p.x), x2: X(p.x), y1: Y(p.low), y2: Y(p.high) }));
    parts.push(s("polyline", { class: "curve", points: usable.map((p) => `${X(p.x)},${Y(p.y)}`).join(" ") }));
    const wide = (W - left - right) / Math.max(1, usable.length);
    for (const p of usable) {
      if (usable.length <= 60) parts.push(s("circle", { class: "dot", cx: X(p.x), cy: Y(p.y), r: 3.2 }));
      parts.push(s("rect", { class: "hit", x: X(p.x) - wide / 2, y: top, width: wide, height: H - top - bottom, tip: p.tip }));
    }
    return h("figure", { class: "card", css: { margin: "0" } }, h("h3", {}, title),
      s("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${title} by batch` }, parts));
  }
  function whiskers(rows) {
    const H = rows.length * 24 + 26, left = 150, W = 720, right = 190;
    const all = rows.flatMap((r) => [r.success.estimate, r.success.low ?? 0, r.success.high ?? 1]);
    const low = Math.min(0, ...all), high = Math.max(1, ...all);
    const X = (x) => left + ((x - low) / (high - low)) * (W - left - right);
    const parts = ticks(low, high, 5).flatMap((at) => [
      s("line", { class: "gridline", x1: X(at), x2: X(at), y1: 4, y2: H - 20 }),
      s("text", { x: X(at), y: H - 6, "text-anchor": "middle" }, num(at)),
    ]);
    rows.forEach((row, place) => {
      const y = 16 + place * 24, found = row.success;
      parts.push(s("text", { x: left - 10, y: y + 4, "text-anchor": "end" }, `${row.value}`));
      if (found.low !== null) parts.push(s("line", { class: "whisker", x1: X(found.low), x2: X(found.high), y1: y, y2: y }));
      parts.push(s("circle", { class: "dot", cx: X(found.estimate), cy: y, r: 4.5 }));
      parts.push(s("text", { x: W - right + 14, y: y + 4 }, interval(found)));
      parts.push(s("rect", { class: "hit", x: 0, y: y - 12, width: W, height: 24, tip: `${row.attribute} ${row.value}\nmean over ${found.n} tasks, 95 % interval\n${interval(found)}` }));
    });
    return h("div", { class: "scroll" }, s("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "success by attribute", css: { "max-width": "720px" } }, parts));
  }

  // --- sections ---------------------------------------------------------------------------
  const title = { training: "Training run", evaluation: "Evaluation", supervised: "Supervised run" }[D.kind] || D.kind;
  function tile(name, value, note) {
    return h("div", { class: "tile" }, h("div", { class: "k" }, name), h("div", { class: "v" }, value), h("div", { class: "s" }, note));
  }
  function top() {
    const R = D.result, applied = R.updates.acknowledged || 0, skipped = R.updates.skipped || 0;
    const scored = D.batches.filter((b) => b.reward);
    const tiles = [];
    if (D.success && D.kind === "evaluation") {
      const found = D.success;
      tiles.push(tile("Success", num(found.estimate), found.low === null ? `${found.n} task` : `95 % interval ${num(found.low)} … ${num(found.high)}, ${found.n} tasks`));
    } else if (scored.length) {
      tiles.push(tile("Reward, first → last batch", `${num(scored[0].reward.estimate)} → ${num(scored.at(-1).reward.estimate)}`, `${scored.length} batches`));
    }
    if (D.trials_total) tiles.push(tile("Trials scored", `${count(R.trials_scored)} / ${count(R.planned_slots)}`, `${count(R.trials_eligible)} eligible, ${count(R.trials_abandoned)} abandoned, ${count(R.launch_failed)} not launched`));
    if (D.kind !== "evaluation") tiles.push(tile("Updates applied", count(applied), `${count(skipped)} skipped, ${count((R.updates.failed || 0) + (R.updates.void || 0))} failed or void, ${count(R.checkpoints.length)} checkpoints`));
    tiles.push(tile("Tokens sampled", count(R.output_tokens), `${count(R.prompt_tokens)} prompt tokens`));
    tiles.push(tile("Time", time(R.seconds), D.started_at ? `since ${D.started_at.slice(0, 16).replace("T", " ")} UTC` : "not started"));
    return h("header", { class: "top" },
      h("div", { class: "brand" }, "Practicum"),
      h("h1", {}, title, h("span", { class: `badge ${D.state}` }, D.state)),
      h("div", { class: "meta" }, h("span", {}, id(D.run)),
        D.dataset && h("span", {}, "dataset ", h("b", {}, D.dataset)),
        h("span", {}, "agent ", h("b", {}, D.actor_name)),
        h("span", {}, "model ", D.model.startsWith("ckp_") ? id(D.model) : h("b", {}, D.model))),
      D.reason && h("div", { class: "notice" }, D.reason, D.next && h("div", {}, "next: ", h("code", {}, D.next))),
      h("div", { class: "tiles" }, tiles));
  }
  function section(name, heading, lead, ...body) {
    return h("section", { id: name }, h("h2", {}, heading), h("p", { class: "lead" }, lead), body);
  }

  const MAIN = { loss: "Loss", kl_sample_train_v2: "KL, sampler against trainer", max_logprob_difference: "Largest log-prob difference", grad_norm: "Gradient norm", entropy: "Entropy of a token" };
  function curves() {
    const parts = [];
    const points = D.batches.map((b) => ({
      x: b.batch, y: b.reward?.estimate, low: b.reward?.low, high: b.reward?.high,
      tip: `batch ${b.batch}\nreward ${interval(b.reward)}\n${b.scored} of ${b.trials} trials scored`,
    }));
    if (D.batches.length > 1) parts.push(curve("Reward, mean of a batch with 95 % interval over groups", points, { zero: true, one: highest <= 1 }));
    const applied = D.updates.filter((u) => u.state === "acknowledged");
    const metric = (name, label) => curve(label, applied.map((u) => ({ x: u.batch, y: u.metrics[name], tip: `batch ${u.batch}\n${words(name)} ${num(u.metrics[name], 5)}\n${u.trials} trials, ${count(u.trained_tokens)} tokens` })));
    for (const [name, label] of Object.entries(MAIN)) parts.push(metric(name, label));
    const names = [...new Set(applied.flatMap((u) => Object.keys(u.metrics)))].filter((n) => !(n in MAIN)).sort();
    const more = names.map((n) => metric(n, words(n))).filter(Boolean);
    const shown = parts.filter(Boolean);
    if (!shown.length && !D.attributes.length) return null;
    return section("curves", D.kind === "evaluation" ? "Success" : "Curves",
      D.kind === "evaluation" ? "A task’s value is the mean of its scored attempts; intervals are over tasks. Attempts without a reward are left out, never counted as zero."
        : "One point per batch. The band is a 95 % t interval; trials of one group are not taken as independent.",
      shown.length > 0 && h("div", { class: "grid" }, shown),
      more.length > 0 && h("details", {}, h("summary", {}, more.length === 1 ? "One other measure of the updates" : `All ${more.length} other measures of the updates`), h("div", { class: "grid small" }, more)),
      D.attributes.length > 0 && h("div", { class: "card", css: { "margin-top": shown.length ? ".9rem" : "0" } },
        ["capability", "severity", "family"].filter((a) => D.attributes.some((r) => r.attribute === a)).map((attribute) =>
          [h("h3", {}, `Success by ${attribute}`), whiskers(D.attributes.filter((r) => r.attribute === attribute))])));
  }

  const KINDS = {
    learnable: "rewards differ: it teaches", zero_variance: "all rewards equal: no gradient", one_member: "one eligible trial: nothing to compare with",
    empty: "no eligible trial", scored: "scored, not learned from", open: "not settled",
  };
  const trialOf = new Map(D.trials.map((t) => [t.trial, t]));
  function trialTip(t) {
    const lines = [`${t.task}  ·  trial ${t.batch}.${t.index}`, `outcome ${words(t.outcome)}`, t.reward === null ? `no reward: ${words(t.reason || "not assessed")}` : `reward ${num(t.reward)}`];
    if (t.advantage !== null) lines.push(`advantage ${signed(t.advantage)}`);
    if (t.weight !== null) lines.push(`weight of a token ${signed(t.weight)}`);
    if (t.ineligible_reason) lines.push(`not learned from: ${words(t.ineligible_reason)}`);
    return lines.join("\n");
  }
  function cell(name) {
    const t = trialOf.get(name);
    if (!t) return null;
    return h("button", {
      type: "button", class: t.reward === null ? "cell none" : "cell", css: t.reward === null ? {} : { background: rewardColour(t.reward) },
      "aria-label": `trial ${t.batch}.${t.index} of ${t.task}`, tip: trialTip(t), onclick: () => open(name, true),
    });
  }
  function groups() {
    if (!D.groups.length) return null;
    const tally = {};
    for (const g of D.groups) tally[g.kind] = (tally[g.kind] || 0) + 1;
    const batches = Map.groupBy(D.groups, (g) => g.batch);
    return section("groups", "Groups", "A group is one task, attempted several times by one frozen model. Each square is a trial, coloured by its reward; a hatched one has none.",
      h("div", { class: "card" },
        h("div", { class: "census" }, Object.keys(KINDS).filter((k) => tally[k]).map((k) => h("i", { class: `kind-${k}`, css: { width: `${(100 * tally[k]) / D.groups.length}%` }, tip: `${words(k)}: ${tally[k]} of ${D.groups.length} groups` }))),
        h("div", { class: "legend" }, Object.entries(KINDS).filter(([k]) => tally[k]).map(([k, about]) => h("span", {}, h("i", { class: `kind-${k}` }), `${words(k)} ${tally[k]} – ${about}`))),
        h("div", { class: "batches" }, [...batches].map(([batch, members]) => h("div", { class: "batch" }, h("span", {}, `batch ${batch}`),
          h("div", { class: "groups" }, members.map((g) => h("div", { class: `group ${g.kind}`, tip: `${g.task}\n${words(g.kind)}: ${KINDS[g.kind]}` }, g.trials.map(cell)))))))));
  }

  function rowsOf(found) {
    // each bar into the first row that is free: as many rows as ever ran at once
    const ends = [];
    return found.map((bar) => {
      const end = bar.end ?? horizon;
      let row = ends.findIndex((at) => at <= bar.start + 1e-9);
      if (row < 0) row = ends.push(0) - 1;
      ends[row] = end;
      return { bar, row, end };
    });
  }
  const horizon = Math.max(1e-6, ...D.bars.map((b) => b.end ?? b.start), D.ended_at ? (Date.parse(D.ended_at) - Date.parse(D.created_at)) / 1000 : 0);
  function shared(one, other) {
    // seconds in which something of both was under way
    const edges = [...one.flatMap((b) => [[b.start, 0, 1], [b.end ?? horizon, 0, -1]]), ...other.flatMap((b) => [[b.start, 1, 1], [b.end ?? horizon, 1, -1]])].sort((a, b) => a[0] - b[0]);
    const open = [0, 0];
    let before = 0, total = 0;
    for (const [at, lane, change] of edges) {
      if (open[0] && open[1]) total += at - before;
      open[lane] += change;
      before = at;
    }
    return total;
  }
  function timeline() {
    const trials = D.bars.filter((b) => b.kind === "trial"), sets = D.bars.filter((b) => b.kind === "group");
    const steps = D.bars.filter((b) => b.lane === "training"), marks = D.bars.filter((b) => b.lane === "platform");
    if (!D.bars.length) return null;
    const W = 1000, left = 84, X = (t) => left + (t / horizon) * (W - left - 12);
    const parts = [];
    let y = 10;
    const lane = (label, placed, size, draw) => {
      if (!placed.length) return;
      const rows = Math.max(...placed.map((p) => p.row)) + 1;
      parts.push(s("text", { x: left - 10, y: y + Math.min(rows * size, size) / 2 + 5, "text-anchor": "end" }, label));
      for (const p of placed) parts.push(draw(p, y + p.row * size, size));
      y += rows * size + 12;
    };
    const ended = (b) => (b.end === null ? "not ended" : `${time(b.end - b.start)}, from ${time(b.start)} to ${time(b.end)}`);
    const bar = (colour, about, pick) => (p, at, size) => s("rect", {
      x: X(p.bar.start), y: at, width: Math.max(1.5, X(p.end) - X(p.bar.start) - 0.5), height: size - 1.5, rx: Math.min(3, size / 3), css: { fill: colour(p.bar), ...(pick ? { cursor: "pointer" } : {}) },
      tip: `${about(p.bar)}\n${ended(p.bar)}`, onclick: pick && (() => pick(p.bar)),
    });
    const byReward = (b) => { const t = trialOf.get(b.trial); return t && t.reward !== null ? rewardColour(t.reward) : "var(--other)"; };
    lane("groups", rowsOf(sets), 6, bar((b) => ((b.batch ?? 0) % 2 ? "var(--other)" : "var(--faint)"), (b) => `group of ${b.name}, batch ${b.batch ?? "–"}`));
    lane("trials", rowsOf(trials), trials.length > 400 ? 5 : 9, bar(byReward, (b) => (trialOf.has(b.trial) ? trialTip(trialOf.get(b.trial)) : b.name), (b) => trialOf.has(b.trial) && open(b.trial, true)));
    lane("training", rowsOf(steps), 14, bar((b) => (b.kind === "step and save" ? "var(--accent)" : "color-mix(in srgb, var(--accent) 55%, var(--card))"), (b) => `${b.kind}, batch ${b.batch ?? "–"}`));
    if (marks.length) {
      parts.push(s("text", { x: left - 10, y: y + 9, "text-anchor": "end" }, "marks"));
      for (const m of marks) {
        const bad = /blocked|failed|void/.test(m.kind), x = X(m.start);
        parts.push(s("path", { d: `M${x},${y} l5,6 l-5,6 l-5,-6 z`, css: { fill: bad ? "var(--bad)" : m.kind === "checkpoint.saved" ? "var(--good)" : "var(--other)" }, tip: `${m.kind}\n${m.name}\nat ${time(m.start)}` }));
      }
      y += 22;
    }
    for (const at of ticks(0, horizon, 8)) {
      parts.unshift(s("line", { class: "gridline", x1: X(at), x2: X(at), y1: 4, y2: y }));
      parts.push(s("text", { x: X(at), y: y + 14, "text-anchor": "middle" }, time(at)));
    }
    const busy = steps.reduce((sum, b) => sum + ((b.end ?? horizon) - b.start), 0), both = shared(trials.length ? trials : sets, steps);
    return section("timeline", "Timeline", steps.length && busy > 0
      ? `Training was under way for ${time(busy)}; during ${time(both)} of it (${Math.round((100 * both) / busy)} %) trials were still sampling.`
      : "Each bar is a trial, coloured by its reward; a row is a place that was free.",
      h("div", { class: "card scroll" }, s("svg", { viewBox: `0 0 ${W} ${y + 20}`, role: "img", "aria-label": "timeline" }, parts)));
  }

  function lineage() {
    const L = D.lineage, line = L.ancestors.toReversed();
    const columns = [];
    const origin = line[0].started_from ? { key: line[0].started_from, what: "checkpoint", name: line[0].started_from, more: "" } : { key: "base", what: "base model", name: line[0].kind && !line[0].model.startsWith("ckp_") ? line[0].model : D.spec.sampler.base_model, more: D.spec.sampler.backend };
    columns.push([origin]);
    const edges = [];
    let before = origin.key;
    line.forEach((run, place) => {
      if (place > 0 && run.started_from) {
        columns.push([{ key: run.started_from, what: "checkpoint", name: run.started_from, more: `after batch ${line[place - 1].through_batch}` }]);
        edges.push([before, run.started_from]);
        before = run.started_from;
      }
      columns.push([{ key: run.run, what: run.kind, name: run.run, more: run.dataset || (run.learns_from ? `from ${short(run.learns_from)}` : ""), self: run.run === D.run }]);
      edges.push([before, run.run]);
      before = run.run;
    });
    const used = new Set(L.runs.map((r) => r.model));
    const saved = L.updates.filter((u) => u.run === D.run && u.checkpoint).toReversed();
    const kept = saved.length <= 7 ? saved : saved.filter((u, place) => place === 0 || place >= saved.length - 2 || used.has(u.checkpoint)).slice(0, 9);
    if (kept.length) {
      const nodes = kept.map((u) => ({ key: u.checkpoint, what: `checkpoint, batch ${u.batch}`, name: u.checkpoint, more: `${u.trials} trials, ${count(u.spans)} spans` }));
      if (kept.length < saved.length) nodes.push({ key: "rest", what: "and", name: `${saved.length - kept.length} more`, more: "" });
      columns.push(nodes);
      for (const node of nodes) edges.push([D.run, node.key]);
    }
    if (L.runs.length) {
      columns.push(L.runs.slice(0, 9).map((r) => ({ key: `use-${r.run}`, what: `later ${r.kind}`, name: r.run, more: r.dataset || (r.learns_from ? "learns from its trials" : "") })));
      for (const r of L.runs.slice(0, 9)) edges.push([kept.some((u) => u.checkpoint === r.model) ? r.model : D.run, `use-${r.run}`]);
    }
    const w = 164, gap = 40, tall = 54, space = 12, rows = Math.max(...columns.map((c) => c.length));
    const H = rows * (tall + space) + 6, W = columns.length * (w + gap) - gap + 4, at = new Map();
    columns.forEach((nodes, c) => nodes.forEach((node, r) => at.set(node.key, { x: 2 + c * (w + gap), y: 3 + (H - 6 - nodes.length * (tall + space) + space) / 2 + r * (tall + space), node })));
    const parts = edges.filter(([a, b]) => at.has(a) && at.has(b)).map(([a, b]) => {
      const p = at.get(a), q = at.get(b), x1 = p.x + w, y1 = p.y + tall / 2, x2 = q.x, y2 = q.y + tall / 2, bend = Math.max(16, (x2 - x1) / 2);
      return s("path", { class: "edge", d: `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}` });
    });
    const fit = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
    for (const { x, y, node } of at.values()) {
      parts.push(s("g", { class: node.self ? "node self" : "node", transform: `translate(${x},${y})`, tip: `${node.what}\n${node.name}\n${node.more}` },
        s("rect", { width: w, height: tall, rx: 8 }), s("text", { class: "what", x: 10, y: 16 }, node.what), s("text", { class: "name", x: 10, y: 32 }, fit(short(node.name), 20)), s("text", { class: "more", x: 10, y: 46 }, fit(node.more, 26))));
    }
    const spans = L.spans.slice(0, 12);
    return section("lineage", "Lineage", `${count(L.updates_total)} updates and ${count(L.spans_total)} token spans are behind this ${D.kind === "evaluation" ? "model" : "run’s last checkpoint"}; ${L.runs.length || "no"} later run${L.runs.length === 1 ? "" : "s"} used what it saved.`,
      h("div", { class: "card scroll" }, s("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "lineage graph", css: { "max-width": `${W}px`, "min-width": `${Math.min(W, 900)}px` } }, parts)),
      spans.length > 0 && h("details", {}, h("summary", {}, spans.length === 1 ? "The newest token span" : `The newest ${spans.length} token spans`),
        h("div", { class: "card scroll", css: { "margin-top": ".6rem" } }, h("table", {}, h("thead", {}, h("tr", {}, ["update", "trial", "task", "call", "tokens", "weight", "reward", "advantage"].map((t) => h("th", {}, t)))),
          h("tbody", {}, spans.map((p) => h("tr", {}, h("td", {}, id(p.update)), h("td", {}, p.trial ? id(p.trial) : `line ${p.row.line}`), h("td", {}, p.task), h("td", {}, p.call), h("td", {}, p.start === null ? p.tokens : `${p.start} … ${p.end}`), h("td", { css: { background: weightColour(p.weight) || "none" } }, signed(p.weight)), h("td", {}, num(p.reward)), h("td", {}, signed(p.advantage)))))))));
  }

  // --- trials and transcripts ---------------------------------------------------------------
  const transcripts = new Map(D.transcripts.map((t) => [t.trial, t]));
  const pane = h("div", { id: "transcript", tabindex: "-1" }), list = h("div", { class: "list" });
  let colouring = "weight", current = null;
  const rows = new Map();
  function tokens(call, from, spelled) {
    return call.output.map((text, place) => {
      const logprob = call.logprobs ? call.logprobs[place] : null;
      const colour = colouring === "weight" ? weightColour(call.weight) : logprob === null ? null : surpriseColour(logprob);
      const shown = text === "" ? "⋯" : text.replaceAll("\n", "↵\n");
      return h("span", { class: "tok", css: colour ? { background: colour } : {}, tip: () => `${JSON.stringify(text)}\nplace ${from + place} of the sequence\nlog-prob ${logprob === null ? "not recorded" : `${num(logprob, 4)}  (p ${num(Math.exp(logprob))})`}\nweight ${call.weight === null ? "none: it moved no update" : signed(call.weight)}` }, shown, spelled ? "" : " ");
    });
  }
  function callView(call, spelled) {
    const half = call.prompt.length / 2, joint = spelled ? "" : " ";
    const prompt = call.omitted ? [call.prompt.slice(0, half).join(joint), h("span", { class: "gap" }, `\n… ${count(call.omitted)} tokens left out …\n`), call.prompt.slice(half).join(joint)] : [call.prompt.join(joint)];
    const left = call.output_tokens - call.output.length;
    return h("article", { class: "call" },
      h("div", { class: "head" }, h("b", {}, `call ${call.call}`), h("span", { tip: "whether its prompt begins with its parent’s prompt and output, token for token" }, call.span),
        call.state !== "answered" && h("span", { class: "gap" }, call.state), call.agent && h("span", {}, `agent ${call.agent}`),
        h("span", {}, `${count(call.prompt_tokens)} prompt tokens, ${count(call.prompt_tokens - call.new_from)} new`), h("span", {}, `${count(call.output_tokens)} sampled`), call.stop && h("span", {}, `ended by ${call.stop}`),
        h("span", { css: { background: weightColour(call.weight) || "none", padding: "0 .35rem", "border-radius": ".25rem" } }, call.weight === null ? "moved no update" : `weight ${signed(call.weight)} a token`)),
      call.prompt.length > 0 && h("div", { class: spelled ? "text prompt" : "text prompt ids" }, prompt),
      h("div", { class: spelled ? "text output" : "text output ids" }, tokens(call, call.prompt_tokens, spelled), left > 0 && h("span", { class: "gap" }, `\n… ${count(left)} more`)));
  }
  function draw() {
    const t = trialOf.get(current), found = transcripts.get(current);
    pane.replaceChildren();
    if (!t) return;
    pane.append(h("div", { class: "card", css: { "margin-bottom": ".8rem" } }, h("h3", {}, t.task), h("div", { class: "meta" }, h("span", {}, id(t.trial)), h("span", {}, `batch ${t.batch}, attempt ${t.index}`), h("span", {}, "outcome ", h("b", {}, words(t.outcome))),
      h("span", {}, t.reward === null ? `no reward: ${words(t.reason || "not assessed")}` : ["reward ", h("b", {}, num(t.reward))]), t.advantage !== null && h("span", {}, "advantage ", h("b", {}, signed(t.advantage))), t.ineligible_reason && h("span", {}, `not learned from: ${words(t.ineligible_reason)}`),
      Object.entries(t.seconds).map(([phase, spent]) => h("span", {}, `${phase} ${time(spent)}`)))));
    if (!found) { pane.append(h("p", { class: "lead" }, "Its transcript is not on this page: ", location.protocol.startsWith("http") ? h("a", { href: `?trial=${encodeURIComponent(t.trial)}#trials` }, "show it") : h("code", {}, `practicum report ${D.run} --trial ${t.trial}`))); return; }
    if (found.problem) pane.append(h("p", { class: "notice" }, found.problem));
    if (!found.spelled && found.calls.length) pane.append(h("p", { class: "lead" }, "The tokenizer is not stored with this run, so tokens are shown as ids."));
    for (const call of found.calls) pane.append(callView(call, found.spelled));
  }
  function reveal(row) {
    // within the list alone: the page itself stays where its reader is
    const above = row.offsetTop - list.offsetTop, below = above + row.offsetHeight;
    if (above < list.scrollTop) list.scrollTop = above;
    else if (below > list.scrollTop + list.clientHeight) list.scrollTop = below - list.clientHeight;
  }
  function open(name, jump) {
    if (rows.has(current)) rows.get(current).setAttribute("aria-current", "false");
    current = name;
    if (rows.has(name)) { rows.get(name).setAttribute("aria-current", "true"); reveal(rows.get(name)); }
    draw();
    if (jump) document.getElementById("trials").scrollIntoView();
  }
  function trials() {
    if (!D.trials.length) return null;
    for (const t of D.trials) {
      const row = h("button", { type: "button", class: transcripts.has(t.trial) ? "row" : "row absent", tip: trialTip(t), onclick: () => open(t.trial, false) }, h("span", { class: "slot" }, `${t.batch}.${t.index}`), h("span", { class: "task" }, t.task),
        h("span", { class: "reward", css: { color: t.reward === null ? "var(--faint)" : rewardColour(t.reward) } }, t.reward === null ? words(t.reason || t.outcome) : num(t.reward)));
      rows.set(t.trial, row);
      list.append(row);
    }
    const search = h("input", { type: "search", placeholder: "Filter by task, outcome or id", "aria-label": "Filter trials", oninput: (event) => {
      const wanted = event.target.value.toLowerCase();
      for (const t of D.trials) rows.get(t.trial).hidden = !`${t.task} ${t.outcome} ${t.reason || ""} ${t.trial} ${t.ineligible_reason || ""}`.toLowerCase().includes(wanted);
    } });
    const choice = (value, label) => h("label", {}, h("input", { type: "radio", name: "colouring", value, checked: value === colouring, onchange: () => { colouring = value; draw(); } }), ` ${label}`);
    const first = D.transcripts.find((t) => t.calls.length) || D.trials[0];
    setTimeout(() => open(first.trial, false));
    const unlisted = D.trials_total - D.trials.length;
    return section("trials", "Trials, token by token", `${count(D.trials_total)} trials${unlisted > 0 ? `, the first ${count(D.trials.length)} listed` : ""}; ${D.transcripts.length} of them with their transcript on this page. Sampled tokens are coloured, what was shown to the model is grey; point at a token for its log-probability and place.`,
      h("div", { class: "tools" }, choice("weight", "weight in the update"), choice("surprise", "surprise (log-prob)"), h("span", {}, "made less likely", h("span", { class: "scale" }), "made more likely")),
      h("div", { class: "trials" }, h("div", { class: "picker" }, search, list), pane));
  }

  function pinned() {
    return section("pinned", "What was pinned", "Everything that the run needed, fixed at admission.",
      h("div", { class: "card" }, h("table", {}, h("tbody", {},
        [["profile", D.spec.actor], ["dataset digest", D.spec.dataset_digest], ["plan digest", D.spec.plan_digest], ["sampler", D.spec.sampler.id], ["base model", `${D.spec.sampler.base_model}  ${D.spec.sampler.base_digest}`], ["renderer", D.spec.sampler.renderer], ...Object.entries(D.spec.fingerprints)]
          .filter((row) => row[1]).map(([name, value]) => h("tr", {}, h("th", {}, name), h("td", {}, h("code", {}, value)))))),
        h("details", {}, h("summary", {}, "Plan"), h("pre", { class: "spec" }, JSON.stringify(D.spec.plan, null, 2)))));
  }

  const body = [curves(), groups(), timeline(), lineage(), trials(), pinned()].filter(Boolean);
  document.getElementById("page").append(top(),
    h("nav", { "aria-label": "Sections" }, h("div", {}, body.map((part) => h("a", { href: `#${part.id}` }, part.querySelector("h2").textContent)))),
    h("main", {}, body),
    h("footer", {}, `Made by practicum from the records of ${D.run}. This page loads nothing.`));
  document.documentElement.dataset.drawn = "yes";
})();
