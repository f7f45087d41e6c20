// Draws all nodes as squares on a canvas: one answer of the API, coloured by what is asked or measured.
"use strict";

(() => {
  const REFRESH_MS_MIN = 2000; // a page asks at most so often
  const WAIT_SHARE = 20; // and waits so many times longer than the last answer took
  const STEPS = 10; // colours of the scale
  const PITCH_MAX = 22; // pixels from one square to the next
  const PITCH_MIN = 3;
  const HEAD = 26; // height of a group's heading
  const HIGH = 0.8; // what the summaries call nearly full

  const COLOURS = {
    cpu: { resource: "cpu", kind: "asked", name: "asked cpu" },
    memory: { resource: "memory", kind: "asked", name: "asked memory" },
    devices: { resource: "nvidia.com/gpu", kind: "asked", name: "devices in use" },
    pods: { resource: "pods", kind: "asked", name: "pods" },
    "measured-cpu": { resource: "cpu", kind: "measured", name: "measured cpu" },
    "measured-memory": { resource: "memory", kind: "measured", name: "measured memory" },
  };
  const FLAGS = [
    ["not_ready", "not ready"],
    ["unschedulable", "takes no new pods"],
    ["tainted", "tainted"],
    ["hot", "hot"],
  ];

  const number = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
  const percent = (share) => `${number.format(100 * share)} %`;

  /** Return an amount of a resource with its unit. */
  function amount(resource, value) {
    if (resource === "cpu") return `${number.format(value / 1000)} cores`;
    if (resource === "nvidia.com/gpu") return `${number.format(value / 1000)} devices`;
    if (resource === "memory") return `${number.format(value / 2 ** 30)} GiB`;
    return number.format(value);
  }

  /** Return the share of each node that a colour shows; NaN where there is nothing to show. */
  function sharesOf(field, colour) {
    const shares = new Float32Array(field.names.length).fill(NaN);
    const column = field.resources.find((each) => each.name === colour.resource);
    if (!column) return shares;
    if (colour.kind === "measured") {
      (column.measured || []).forEach((value, at) => {
        if (value !== null) shares[at] = value / 100;
      });
      return shares;
    }
    column.allocatable.forEach((offered, at) => {
      if (offered > 0) shares[at] = column.requested[at] / offered;
    });
    return shares;
  }

  /** Return the step of the scale: 0 to STEPS - 1, STEPS where it is more than all, -1 where there is none. */
  function stepOf(share) {
    if (Number.isNaN(share)) return -1;
    if (share > 1) return STEPS;
    return Math.min(STEPS - 1, Math.floor(share * STEPS));
  }

  /** Return where squares are: their side, how many stand in a row, and the top of each group. */
  function layoutOf(groups, count, width) {
    const aim = Math.sqrt((width * Math.max(300, Math.min(640, width))) / Math.max(1, count));
    const pitch = Math.max(PITCH_MIN, Math.min(PITCH_MAX, Math.floor(aim)));
    const side = pitch > 4 ? pitch - 1 : pitch;
    const columns = Math.max(1, Math.floor(width / pitch));
    const head = groups.length > 1 || groups.some((each) => each.value !== null) ? HEAD : 0;
    let top = 0;
    let first = 0;
    const blocks = groups.map((group) => {
      const block = { value: group.value, first, count: group.nodes, top: top + head };
      first += group.nodes;
      top = block.top + Math.ceil(group.nodes / columns) * pitch + (head ? 8 : 0);
      return block;
    });
    return { side, pitch, columns, blocks, height: Math.max(top, pitch) };
  }

  /** Return the block that a node is in. */
  function blockOf(layout, at) {
    return layout.blocks.find((block) => at < block.first + block.count);
  }

  /** Return the corner of a node's square. */
  function placeOf(layout, at) {
    const block = blockOf(layout, at);
    const index = at - block.first;
    const row = Math.floor(index / layout.columns);
    return { x: (index % layout.columns) * layout.pitch, y: block.top + row * layout.pitch };
  }

  /** Return the node at a point, or -1. */
  function nodeAt(layout, x, y) {
    const column = Math.floor(x / layout.pitch);
    if (x < 0 || column >= layout.columns) return -1;
    for (const block of layout.blocks) {
      const row = Math.floor((y - block.top) / layout.pitch);
      const index = row * layout.columns + column;
      if (row >= 0 && index < block.count && y >= block.top) return block.first + index;
      if (y < block.top) return -1;
    }
    return -1;
  }

  /** Return the node to which a key leads; the same one where it leads nowhere. */
  function moved(layout, at, key) {
    const last = layout.blocks[layout.blocks.length - 1];
    const end = last.first + last.count - 1;
    const number = layout.blocks.indexOf(blockOf(layout, at));
    const { first, count } = layout.blocks[number];
    const column = (at - first) % layout.columns;
    const before = layout.blocks[number - 1];
    const behind = layout.blocks[number + 1];
    switch (key) {
      case "ArrowLeft":
        return Math.max(0, at - 1);
      case "ArrowRight":
        return Math.min(end, at + 1);
      case "ArrowUp":
        if (at - layout.columns >= first) return at - layout.columns;
        if (!before) return at;
        return before.first + Math.min(before.count - 1, lastRow(layout, before) + column);
      case "ArrowDown":
        if (at + layout.columns < first + count) return at + layout.columns;
        if (at - first < lastRow(layout, { count })) return first + count - 1;
        return behind ? behind.first + Math.min(behind.count - 1, column) : at;
      case "PageUp":
        return before ? before.first : 0;
      case "PageDown":
        return behind ? behind.first : end;
      case "Home":
        return 0;
      case "End":
        return end;
      default:
        return at;
    }
  }

  function lastRow(layout, block) {
    return Math.floor((block.count - 1) / layout.columns) * layout.columns;
  }

  /** Return what a group's summary says. */
  function summaryOf(shares, first, count) {
    let sum = 0;
    let known = 0;
    let high = 0;
    for (let at = first; at < first + count; at++) {
      if (Number.isNaN(shares[at])) continue;
      known += 1;
      sum += shares[at];
      if (shares[at] >= HIGH) high += 1;
    }
    return { known, high, mean: known ? sum / known : NaN };
  }

  function element(name, properties = {}, ...children) {
    const made = document.createElement(name);
    Object.assign(made, properties);
    made.append(...children);
    return made;
  }

  /** Put an element somewhere, in pixels. */
  function put(what, where) {
    for (const [name, pixels] of Object.entries(where)) what.style[name] = `${pixels}px`;
  }

  class FieldView {
    constructor(root) {
      this.root = root;
      this.field = null;
      this.etag = "";
      this.at = -1; // the node that is pointed at
      this.tookMs = 0;
      this.newerMs = 0;
      this.isAsking = false;
      this.isAskedAgain = false;
      this.lastMs = -Infinity;
      this.timer = 0;
      this.build();
    }

    get colour() {
      return COLOURS[this.colourSelect.value] || COLOURS.cpu;
    }

    build() {
      this.canvas = element("canvas", { tabIndex: 0 });
      this.canvas.setAttribute("role", "application");
      this.canvas.setAttribute("aria-label", "Nodes as squares: arrow keys move, Enter opens a node");
      this.tip = element("div", { className: "field-tip", hidden: true });
      this.frame = element("div", { className: "field-frame", hidden: true });
      this.said = element("p", { className: "field-said" });
      this.said.setAttribute("aria-live", "polite");
      this.state = element("p", { className: "field-state" }, "Asking for the nodes …");
      this.state.setAttribute("role", "status");
      this.summary = element("table", { className: "field-summary" });
      this.stage = element("div", { className: "field-stage" }, this.canvas, this.frame, this.tip);
      const plain = this.root.querySelector(".field-plain");
      if (plain) plain.hidden = true;
      const details = element("details", {}, element("summary", {}, "The same as a table"), this.summary);
      this.root.append(this.state, this.stage, this.said, details);
      this.colourSelect = document.getElementById("field-colour");
      this.byInput = document.getElementById("field-by");
      this.listen();
    }

    listen() {
      this.colourSelect.addEventListener("change", () => this.choose());
      this.byInput.addEventListener("change", () => this.choose());
      this.colourSelect.form.addEventListener("submit", (event) => {
        event.preventDefault();
        this.choose();
      });
      this.canvas.addEventListener("pointermove", (event) => {
        const at = this.under(event);
        if (at !== this.at) this.point(at, false);
      });
      this.canvas.addEventListener("pointerleave", () => this.point(-1, false));
      this.canvas.addEventListener("click", (event) => this.open(this.under(event), event));
      this.canvas.addEventListener("keydown", (event) => this.press(event));
      this.canvas.addEventListener("focus", () => this.field && this.point(Math.max(0, this.at), true));
      this.canvas.addEventListener("blur", () => this.point(-1, false));
      new ResizeObserver(() => this.draw()).observe(this.root);
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
      new MutationObserver(() => this.draw()).observe(document.documentElement, {
        attributeFilter: ["data-theme", "class"],
      });
      document.addEventListener("visibilitychange", () => this.isAskedAgain && this.refresh());
      document.addEventListener("berth:changed", () => this.refresh());
    }

    /** Take what the form says: another label or measurements are asked for, another colour only drawn. */
    choose() {
      const url = new URL(location.href);
      url.searchParams.set("colour", this.colourSelect.value);
      url.searchParams.set("by", this.byInput.value || "-"); // as the page has it: no label
      history.replaceState(history.state, "", url);
      if (this.asked() === this.askedFor) {
        this.draw();
      } else {
        this.etag = "";
        this.ask();
      }
    }

    /** Return what is asked for. */
    asked() {
      const url = new URL(this.root.dataset.src, location.href);
      if (this.byInput.value) url.searchParams.set("by", this.byInput.value);
      if (this.colour.kind === "measured") url.searchParams.set("measured", "true");
      return url.href;
    }

    /** Ask again soon, but not too often, and not while nobody looks. */
    refresh() {
      if (this.root.dataset.at) return; // the past stays as it is
      this.isAskedAgain = true;
      if (this.timer || this.isAsking || document.hidden) return;
      const pause = Math.max(REFRESH_MS_MIN, WAIT_SHARE * this.tookMs, this.newerMs);
      const wait = Math.max(0, this.lastMs + pause - performance.now());
      this.timer = setTimeout(() => {
        this.timer = 0;
        this.ask();
      }, wait);
    }

    async ask() {
      if (this.isAsking) {
        this.isAskedAgain = true;
        return;
      }
      this.isAsking = true;
      this.isAskedAgain = false;
      const began = performance.now();
      const target = this.asked();
      try {
        await this.take(target, await fetch(target, { headers: this.etag ? { "If-None-Match": this.etag } : {} }));
        this.state.hidden = true;
      } catch (error) {
        this.say(`The nodes were not told (${error.message}); what is shown may be old.`);
        this.isAskedAgain = true;
      } finally {
        this.lastMs = performance.now();
        this.tookMs = this.lastMs - began;
        this.isAsking = false;
      }
      if (this.asked() !== target) {
        this.etag = "";
        this.ask();
      } else if (this.isAskedAgain) {
        this.refresh();
      }
    }

    async take(target, answer) {
      if (answer.ok || answer.status === 304) {
        this.newerMs = 1000 * Number(answer.headers.get("Retry-After") || 0); // 0: this is the newest
        if (this.newerMs > 0) this.isAskedAgain = true;
      }
      if (answer.status === 304) return;
      if (!answer.ok) {
        const told = await answer.json().catch(() => ({}));
        throw new Error(told.error ? told.error.message : `status ${answer.status}`);
      }
      this.field = await answer.json();
      this.etag = answer.headers.get("ETag") || "";
      this.askedFor = target;
      this.flags = FLAGS.map(([name, says]) => [new Set(this.field[name] || []), says, name]);
      this.at = Math.min(this.at, this.field.names.length - 1);
      this.draw();
    }

    say(text) {
      this.state.textContent = text;
      this.state.hidden = false;
    }

    // ------------------------------------------------------------------------------------------- drawing

    draw() {
      const width = Math.floor(this.root.clientWidth);
      if (!this.field || !width) return;
      this.shares = sharesOf(this.field, this.colour);
      this.layout = layoutOf(this.field.groups, this.field.names.length, width);
      const ratio = window.devicePixelRatio || 1;
      this.canvas.width = Math.floor(width * ratio);
      this.canvas.height = Math.floor(this.layout.height * ratio);
      put(this.canvas, { width, height: this.layout.height });
      const pen = this.canvas.getContext("2d");
      pen.scale(ratio, ratio);
      this.pens = this.readPens();
      this.drawSquares(pen);
      this.drawHeads(pen, width);
      this.drawFlags(pen);
      this.point(this.at, false);
      this.writeSummary();
      this.root.dataset.drawn = String(this.field.names.length);
      this.root.dispatchEvent(new CustomEvent("berth:drawn", { bubbles: true }));
    }

    readPens() {
      const style = getComputedStyle(this.root);
      const read = (name) => style.getPropertyValue(name).trim();
      const steps = Array.from({ length: STEPS + 1 }, (_, step) => read(`--field-${step}`));
      return { steps, none: read("--field-none"), mark: read("--field-mark"), text: read("--field-text"), font: style.fontFamily };
    }

    drawSquares(pen) {
      const { side, pitch, columns, blocks } = this.layout;
      const ofStep = Array.from({ length: STEPS + 2 }, () => []);
      for (let at = 0; at < this.shares.length; at++) ofStep[stepOf(this.shares[at]) + 1].push(at);
      ofStep.forEach((nodes, step) => {
        pen.fillStyle = step === 0 ? this.pens.none : this.pens.steps[step - 1];
        let number = 0;
        for (const at of nodes) {
          while (at >= blocks[number].first + blocks[number].count) number += 1;
          const index = at - blocks[number].first;
          const row = Math.floor(index / columns);
          pen.fillRect((index - row * columns) * pitch, blocks[number].top + row * pitch, side, side);
        }
      });
    }

    drawHeads(pen, width) {
      if (this.layout.blocks.every((block) => block.top === 0)) return;
      pen.fillStyle = this.pens.text;
      pen.font = `13px ${this.pens.font}`;
      pen.textBaseline = "bottom";
      for (const block of this.layout.blocks) {
        const { mean } = summaryOf(this.shares, block.first, block.count);
        const name = block.value === null ? "without this label" : block.value;
        const told = Number.isNaN(mean) ? "" : `, ${percent(mean)} on average`;
        pen.fillText(`${name}: ${number.format(block.count)} nodes${told}`, 0, block.top - 4, width);
      }
    }

    /** Mark what is wrong: a cross not ready, a stroke takes no new pods, a frame is hot. */
    drawFlags(pen) {
      const { side } = this.layout;
      pen.strokeStyle = this.pens.mark;
      pen.lineWidth = side > 9 ? 1.5 : 1;
      for (const [nodes, , name] of this.flags) {
        if (name === "tainted") continue;
        pen.beginPath();
        for (const at of nodes) {
          const { x, y } = placeOf(this.layout, at);
          if (name === "hot") {
            pen.rect(x + 0.5, y + 0.5, side - 1, side - 1);
            continue;
          }
          pen.moveTo(x, y + side);
          pen.lineTo(x + side, y);
          if (name === "not_ready") {
            pen.moveTo(x, y);
            pen.lineTo(x + side, y + side);
          }
        }
        pen.stroke();
      }
    }

    writeSummary() {
      const head = element("tr");
      for (const title of ["Group", "Nodes", `Mean of ${this.colour.name}`, `At ${percent(HIGH)} or more`, "Not ready"]) {
        const cell = element("th", { scope: "col" }, title);
        if (title !== "Group") cell.className = "number";
        head.append(cell);
      }
      const notReady = this.flags[0][0];
      const rows = this.layout.blocks.slice(0, 200).map((block) => {
        const { known, high, mean } = summaryOf(this.shares, block.first, block.count);
        let down = 0;
        for (const at of notReady) if (at >= block.first && at < block.first + block.count) down += 1;
        const name = block.value === null ? (this.field.by ? "without this label" : "all nodes") : block.value;
        const cells = [block.count, known ? percent(mean) : "–", known ? high : "–", down];
        return element(
          "tr",
          {},
          element("th", { scope: "row" }, name),
          ...cells.map((text) => element("td", { className: "number" }, typeof text === "number" ? number.format(text) : text)),
        );
      });
      this.summary.replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
    }

    // --------------------------------------------------------------------------------- pointing at a node

    under(event) {
      return this.layout ? nodeAt(this.layout, event.offsetX, event.offsetY) : -1;
    }

    point(at, isByKey) {
      if (!this.layout || this.field.names.length === 0) return;
      this.at = at;
      this.canvas.style.cursor = at < 0 ? "default" : "pointer";
      this.tip.hidden = this.frame.hidden = at < 0;
      if (at < 0) return;
      const lines = this.describe(at);
      this.tip.replaceChildren(...lines.map((line, row) => element(row ? "div" : "strong", {}, line)));
      const { x, y } = placeOf(this.layout, at);
      const { side } = this.layout;
      const room = this.root.clientWidth - this.tip.offsetWidth;
      put(this.tip, { left: Math.max(0, Math.min(x, room)), top: y + side + 8 });
      put(this.frame, { left: x - 3, top: y - 3, width: side + 6, height: side + 6 });
      if (isByKey) this.said.textContent = lines.join(", ");
    }

    describe(at) {
      const lines = [this.field.names[at]];
      const group = blockOf(this.layout, at);
      if (this.field.by) lines.push(group.value === null ? `no ${this.field.by}` : group.value);
      for (const column of this.field.resources) {
        const offered = column.allocatable[at];
        const asked = column.requested[at];
        if (!offered && !asked) continue;
        const share = offered ? ` (${percent(asked / offered)})` : "";
        lines.push(`${column.name}: ${amount(column.name, asked)} of ${amount(column.name, offered)}${share}`);
        if (column.measured && column.measured[at] !== null) {
          lines.push(`${column.name} measured: ${percent(column.measured[at] / 100)}`);
        }
      }
      for (const [nodes, says] of this.flags) if (nodes.has(at)) lines.push(says);
      return lines;
    }

    press(event) {
      if (!this.field || !this.layout || event.ctrlKey || event.metaKey || event.altKey) return;
      const at = Math.max(0, this.at);
      if (event.key === "Enter") {
        this.open(at, event);
      } else if (event.key === "Escape") {
        this.point(-1, false);
      } else if (/^(Arrow|Page|Home$|End$)/.test(event.key)) {
        event.preventDefault();
        const to = moved(this.layout, at, event.key);
        this.point(to, true);
        this.scrollTo(to);
      }
    }

    scrollTo(at) {
      const box = this.canvas.getBoundingClientRect();
      const { y } = placeOf(this.layout, at);
      const top = box.top + y;
      if (top < 60 || top > innerHeight - 60) scrollBy(0, top - innerHeight / 2);
    }

    open(at, event) {
      if (at < 0 || !this.field) return;
      const target = new URL(`${this.root.dataset.node}/${encodeURIComponent(this.field.names[at])}`, location.href);
      if (this.root.dataset.at) target.searchParams.set("at", this.root.dataset.at);
      if (event.ctrlKey || event.metaKey) {
        window.open(target, "_blank", "noopener");
      } else {
        location.assign(target);
      }
    }
  }

  const root = document.getElementById("node-field");
  if (root) new FieldView(root).ask();
})();
