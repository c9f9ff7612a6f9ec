// Markdown to DOM nodes, made with createElement and text nodes only: text from a model never becomes markup.
// Knows code blocks, headings, lists, quotes, rules, paragraphs, and inside them code, bold, italic and http(s) links.

const FENCE = /^\s*(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const RULE = /^\s*([-*_])(\s*\1){2,}\s*$/;
const QUOTE = /^\s*>\s?/;
// Every repetition is bounded, so hostile text costs linear time.
const INLINE = new RegExp([
  /(?<tick>`{1,2})(?<code>[^\n]{1,2000}?)\k<tick>/,
  /\*\*(?<bold>\S(?:[^\n]{0,2000}?\S)?)\*\*/,
  /(?<![\w*])\*(?<star>[^\s*](?:[^*\n]{0,1000}?[^\s*])?)\*(?![\w*])/,
  /(?<!\w)_(?<line>[^\s_](?:[^\n]{0,1000}?[^\s_])?)_(?!\w)/,
  /\[(?<label>[^\]\n]{1,500})\]\((?<url>https?:\/\/[^\s)]{1,2000})\)/,
].map((part) => part.source).join("|"), "g");

function make(tag, ...children) {
  const node = document.createElement(tag);
  node.append(...children);
  return node;
}

function inline(text) {
  const out = [];
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    const { code, bold, star, line, label, url } = match.groups;
    out.push(text.slice(end, match.index));
    end = match.index + match[0].length;
    if (code) out.push(make("code", code.trim() || code));
    else if (bold) out.push(make("strong", ...inline(bold)));
    else if (star || line) out.push(make("em", ...inline(star || line)));
    else out.push(Object.assign(make("a", label), { href: url, target: "_blank", rel: "noopener noreferrer" }));
  }
  out.push(text.slice(end));
  return out;
}

const ordered = (line) => /^\s*\d/.test(line);

function continues(open, line) {
  if (open?.kind !== "list") return false;
  return /^\s{2}|^\t/.test(line) || (ITEM.test(line) ? open.info === ordered(line) : /^\s/.test(line));
}

/** Cuts text into blocks {kind, lines, info}. An unfinished block at the end is a block already, as streaming needs. */
function split(text) {
  const blocks = [];
  let fence = null;
  let open = null; // the block that the next line may belong to
  const start = (kind, line, info) => blocks.push((open = { kind, lines: [line], info }));
  for (const line of text.split("\n")) {
    const mark = FENCE.exec(line);
    if (fence) {
      if (mark && !mark[2] && mark[1].startsWith(fence)) fence = null;
      else blocks.at(-1).lines.push(line);
    } else if (mark) {
      fence = mark[1];
      blocks.push({ kind: "code", lines: [], info: mark[2] });
      open = null;
    } else if (!line.trim()) {
      if (open?.kind !== "list") open = null; // items may stand apart
    } else if (RULE.test(line)) {
      start("rule", line);
      open = null;
    } else if (HEADING.test(line)) {
      start("heading", line);
      open = null;
    } else if (continues(open, line)) {
      open.lines.push(line);
    } else if (ITEM.test(line)) {
      start("list", line, ordered(line));
    } else {
      const kind = QUOTE.test(line) ? "quote" : "text";
      if (open?.kind === kind) open.lines.push(line);
      else start(kind, line);
    }
  }
  return blocks;
}

function list(lines) {
  const levels = []; // {indent, node} from the outside in
  for (const line of lines) {
    const item = ITEM.exec(line.replaceAll("\t", "    "));
    if (!item) {
      levels.at(-1).node.lastChild.append("\n", ...inline(line.trim()));
      continue;
    }
    const [, { length: indent }, bullet, content] = item;
    while (levels.length > 1 && indent < levels.at(-1).indent) levels.pop();
    if (!levels.length || (indent > levels.at(-1).indent + 1 && levels.length < 8)) {
      const node = make(/\d/.test(bullet) ? "ol" : "ul");
      if (node.tagName === "OL") node.start = parseInt(bullet, 10);
      levels.at(-1)?.node.lastChild.append(node);
      levels.push({ indent, node });
    }
    levels.at(-1).node.append(make("li", ...inline(content)));
  }
  return levels[0].node;
}

function codeBlock({ lines, info }) {
  const copy = Object.assign(make("button", "Copy"), { type: "button", className: "plain" });
  copy.dataset.act = "copy";
  const figure = make("figure", make("figcaption", make("span", info || "code"), copy), make("pre", make("code", lines.join("\n"))));
  figure.querySelector("pre").tabIndex = 0; // wide code scrolls by keyboard
  return figure;
}

function build(block) {
  const text = block.lines.join("\n");
  switch (block.kind) {
    case "code": return codeBlock(block);
    case "list": return list(block.lines);
    case "rule": return make("hr");
    case "heading": return make(`h${Math.min(6, HEADING.exec(text)[1].length + 3)}`, ...inline(HEADING.exec(text)[2]));
    case "quote": return make("blockquote", ...inline(block.lines.map((line) => line.replace(QUOTE, "")).join("\n")));
    default: return make("p", ...inline(text));
  }
}

const sources = new WeakMap();

/** Makes `target` show `text`. Blocks that did not change keep their nodes, so selections survive streaming. */
export function renderMarkdown(target, text) {
  const blocks = split(text);
  blocks.forEach((block, index) => {
    const source = JSON.stringify(block);
    const old = target.children[index];
    if (old && sources.get(old) === source) return;
    const node = build(block);
    sources.set(node, source);
    if (old) old.replaceWith(node);
    else target.append(node);
  });
  while (target.children.length > blocks.length) target.lastElementChild.remove();
}
