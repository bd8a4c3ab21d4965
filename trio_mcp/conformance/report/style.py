"""The style of the page."""

from __future__ import annotations

from typing import Final

__all__ = ["STYLE"]

STYLE: Final = """
:root {
  --paper: #f6f7f9; --card: #fff; --ink: #1b1f27; --soft: #5b6472; --line: #dfe3e9; --link: #1a5fb4;
  --broken: #c2352b; --held: #1f8a4c; --unused: #b6bdc8; --unclear: #8f86b8; --should: #a66a12;
  --broken-back: #fdeceb; --held-back: #e6f5ec; --should-back: #fdf3e1; --code: #f0f2f5;
  --mono: ui-monospace, "SF Mono", SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #12151a; --card: #1b2028; --ink: #e6e9ee; --soft: #98a2b1; --line: #2e3540; --link: #78aeff;
    --broken: #ff7b72; --held: #4cc17f; --unused: #566070; --unclear: #8379b3; --should: #e0ab4f;
    --broken-back: #3a1f20; --held-back: #16301f; --should-back: #352a15; --code: #252b35;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; padding: 2.5rem 1.5rem 3rem; max-width: 76rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
h1, h2, h3, p, ul, dl, pre { margin: 0; }
h1 { font-size: 2rem; line-height: 1.2; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.75rem 0 1rem; }
ul { padding: 0; list-style: none; }
a { color: var(--link); text-decoration-thickness: 1px; text-underline-offset: 2px; overflow-wrap: anywhere; }
code, pre { font-family: var(--mono); font-size: .875em; }
code { overflow-wrap: anywhere; }
.over, .info, .fine { color: var(--soft); }
.over { font-size: .875rem; margin-bottom: .25rem; }
.info { overflow-wrap: anywhere; }
.fine { font-size: .875rem; overflow-wrap: anywhere; }

.verdict {
  display: flex; align-items: center; gap: .75rem; margin: 1.25rem 0; padding: .9rem 1.1rem; border-radius: 12px;
  font-size: 1.2rem; font-weight: 650;
}
.verdict.bad { background: var(--broken-back); color: var(--broken); }
.verdict.good { background: var(--held-back); color: var(--held); }
.warning {
  margin: -.25rem 0 1.25rem; padding: .7rem 1.1rem; border-radius: 12px; background: var(--should-back);
  color: var(--should); font-weight: 600;
}
.bar { display: flex; gap: 2px; height: 6px; border-radius: 3px; overflow: hidden; background: var(--line); }
.bar.large { height: 14px; border-radius: 7px; }
.bar span { flex: 0 1 0; min-width: 4px; }
.bar .broken { background: var(--broken); } .bar .held { background: var(--held); }
.bar .unused { background: var(--unused); } .bar .unclear { background: var(--unclear); }
.bar .hidden { background: repeating-linear-gradient(135deg, var(--unused) 0 2px, transparent 2px 5px); }
.tiles { display: grid; grid-template-columns: repeat(4, 1fr); gap: .75rem; margin: 1rem 0; }
.tiles li {
  padding: .7rem 1rem; border: 1px solid var(--line); border-radius: 12px; background: var(--card);
  display: flex; flex-direction: column;
}
.tiles b { font-size: 1.7rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.tiles span { color: var(--soft); font-size: .875rem; }
.tiles i { font-style: normal; font-weight: 700; }
.tiles .broken i { color: var(--broken); } .tiles .held i { color: var(--held); }
.tiles .unused i { color: var(--unused); } .tiles .unclear i { color: var(--unclear); }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(10rem, 1fr)); gap: .75rem 1.5rem; }
dt { color: var(--soft); font-size: .8rem; }
dd { margin: 0; overflow-wrap: anywhere; }
dd span { white-space: nowrap; }

article {
  display: grid; grid-template-columns: minmax(0, 5fr) minmax(0, 7fr); margin-bottom: 1.25rem; overflow: hidden;
  border: 1px solid var(--line); border-left: 4px solid var(--broken); border-radius: 12px; background: var(--card);
}
article.should { border-left-color: var(--should); }
.rule { padding: 1.2rem 1.3rem; display: flex; flex-direction: column; gap: .7rem; align-items: flex-start; }
.rule h3 { font-size: 1rem; line-height: 1.6; }
.rule .sentence { font-size: 1.06rem; }
.problem {
  padding: .6rem .8rem; border-radius: 8px; background: var(--broken-back); color: var(--broken);
  font-weight: 600; overflow-wrap: anywhere; width: 100%;
}
.should .problem { background: var(--should-back); color: var(--should); }
.exchange { padding: 1rem 1.1rem; border-left: 1px solid var(--line); min-width: 0; }
.badge {
  display: inline-block; padding: 0 .45rem; border-radius: 5px; background: var(--code); color: var(--soft);
  font: 650 .72rem/1.5 system-ui, sans-serif; letter-spacing: .03em; vertical-align: .1em; margin-right: .3rem;
}
.rule .badge.must { background: var(--broken-back); color: var(--broken); }
.rule .badge.should { background: var(--should-back); color: var(--should); }
pre {
  padding: .7rem .8rem; border-radius: 8px; background: var(--code); overflow: auto; max-height: 24rem;
  max-width: 100%; font-size: .8rem;
}
.command { width: 100%; white-space: pre-wrap; overflow-wrap: anywhere; }
.exchange details { margin-top: .5rem; font-size: .875rem; color: var(--soft); }
.exchange summary { cursor: pointer; }
.exchange pre { margin-top: .5rem; color: var(--ink); }

.diagram { display: block; font-family: var(--mono); }
.diagram .life { stroke: var(--line); stroke-width: 2; }
.diagram .who { fill: var(--soft); text-anchor: middle; font-size: 12px; font-weight: 700; }
.diagram .row line { stroke: var(--soft); stroke-width: 1.6; }
.diagram .row polygon { fill: var(--soft); }
.diagram .light line { stroke-dasharray: 4 4; stroke-width: 1.2; }
.diagram .band { fill: none; }
.diagram .bad .band { fill: var(--broken-back); }
.diagram .bad line { stroke: var(--broken); stroke-width: 2.2; }
.diagram .bad polygon { fill: var(--broken); }
.diagram .label, .diagram .detail {
  overflow: hidden; white-space: nowrap; text-overflow: ellipsis; text-align: center;
}
.diagram .label { font-size: 12px; line-height: 17px; font-weight: 650; color: var(--ink); }
.diagram .detail { font-size: 11px; line-height: 16px; color: var(--soft); }
.diagram .light .label { font-weight: 400; color: var(--soft); }
.diagram .bad .label { color: var(--broken); font-weight: 700; }
.should .bad .band { fill: var(--should-back); }
.should .bad line { stroke: var(--should); }
.should .bad polygon { fill: var(--should); }
.should .bad .label { color: var(--should); }
.diagram .note rect { fill: var(--code); stroke: var(--line); }
.diagram .note .label { font-weight: 400; }
.diagram .note.bad rect { fill: var(--broken-back); stroke: var(--broken); }
.diagram .note.quiet rect { fill: var(--card); stroke-dasharray: 3 3; }
.diagram .note.quiet .label { color: var(--soft); }

.section { border: 1px solid var(--line); border-radius: 12px; background: var(--card); margin-bottom: .6rem; }
.section summary {
  display: grid; grid-template-columns: 1fr auto 9rem; gap: 1rem; align-items: center; padding: .7rem 1.1rem;
  cursor: pointer; list-style: none;
}
.section summary::-webkit-details-marker { display: none; }
.section .name::before { content: "▸"; display: inline-block; width: 1.2em; color: var(--soft); }
.section[open] .name::before { content: "▾"; }
.section .name { font-weight: 600; }
#rules > .fine { margin-bottom: .8rem; }
.numbers { display: flex; gap: .8rem; font-size: .875rem; font-variant-numeric: tabular-nums; }
.numbers .broken, .mark.broken { color: var(--broken); font-weight: 700; }
.numbers .held, .mark.held { color: var(--held); }
.numbers .unused, .mark.unused { color: var(--soft); }
.numbers .unclear, .mark.unclear { color: var(--unclear); }
.outcomes { border-top: 1px solid var(--line); }
.outcomes li { display: flex; gap: .8rem; padding: .65rem 1.1rem; border-bottom: 1px solid var(--line); }
.outcomes li:last-child { border-bottom: 0; }
.outcomes li > div { min-width: 0; }
.mark { flex: 0 0 1.2em; font-weight: 700; text-align: center; }
#notes li { padding: .15rem 0 .15rem 1.1rem; text-indent: -1.1rem; overflow-wrap: anywhere; }
#notes li::before { content: "·"; display: inline-block; width: 1.1rem; text-indent: 0; color: var(--soft); }
table { border-collapse: collapse; }
th, td { text-align: left; padding: .3rem 1.5rem .3rem 0; border-bottom: 1px solid var(--line); font-weight: 400; }
th { color: var(--soft); vertical-align: top; }
#coverage details { margin-bottom: .5rem; }
#coverage summary { cursor: pointer; }
#coverage table { margin: .6rem 0 1rem; width: 100%; }
#coverage th { width: 22rem; }
#coverage td { white-space: nowrap; font-variant-numeric: tabular-nums; }
#coverage .wide { width: 50%; padding-right: 0; }
.figures td, .bars td { font-variant-numeric: tabular-nums; white-space: nowrap; }
.figures { display: block; overflow-x: auto; }
.bars { width: 100%; } .bars th { width: 9rem; } .bars .wide { width: 70%; padding-right: 0; }
footer { margin-top: 3rem; color: var(--soft); font-size: .875rem; }

@media (max-width: 52rem) {
  body { padding: 1.25rem .9rem 2rem; }
  h1 { font-size: 1.6rem; }
  .tiles { grid-template-columns: repeat(2, 1fr); }
  dl { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  article { grid-template-columns: minmax(0, 1fr); }
  .exchange { border-left: 0; border-top: 1px solid var(--line); padding: .8rem .6rem; }
  #coverage th { width: auto; }
  #coverage .wide { width: 30%; }
  .section summary { grid-template-columns: 1fr auto; gap: .4rem 1rem; }
  .section summary .bar { grid-column: 1 / -1; }
}
@media print { body { max-width: none; } article, .section { break-inside: avoid; } }
"""
