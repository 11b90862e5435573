//! The style sheet of the page, light and dark.

/// The style sheet.
pub(crate) const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1d2329;--soft:#5b6670;--line:#e3e7ea;--paper:#fff;--card:#f8f9fa;--published:#b4bcc4;--measured:#2166ac;\
--good:#1a7f4b;--bad:#b3261e}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#9aa5af;--line:#30373e;--paper:#14181c;--card:#1b2025;--published:#67727d;--measured:#6aa8e0;\
--good:#5fc78f;--bad:#f2857c}}\
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}\
main{max-width:1130px;margin:0 auto;padding:44px 24px 80px}h1{font-size:32px;line-height:1.2;margin:0 0 6px;letter-spacing:-.015em}\
.subtitle{color:var(--soft);margin:0 0 22px;font-size:15px}h2{font-size:23px;margin:56px 0 8px;letter-spacing:-.01em}\
h3{font-size:15px;margin:24px 0 8px;color:var(--soft);font-weight:600}p{margin:0 0 12px;max-width:82ch}.headline{font-weight:600}\
.note{color:var(--soft);font-size:14.5px}a{color:inherit}\
.tables{display:grid;grid-template-columns:repeat(auto-fit,minmax(240px,1fr));gap:12px;padding:0;margin:0;list-style:none}\
.tables a{display:block;height:100%;padding:14px 16px;background:var(--card);border:1px solid var(--line);border-radius:10px;text-decoration:none}\
.tables b{display:block;margin-bottom:2px}.tables span{display:block;font-size:14px;color:var(--soft)}.tables .count{margin-top:8px;font-weight:600}\
.tables .good{color:var(--good)}.tables .bad{color:var(--bad)}\
.verdicts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(430px,100%),1fr));gap:0 32px;padding:0;margin:0 0 8px;list-style:none;font-size:14px}\
.verdicts li{display:flex;gap:8px;padding:5px 0;border-bottom:1px solid var(--line)}.verdicts span{flex:1}\
.verdicts b{font-weight:600;font-variant-numeric:tabular-nums}.verdicts i{font-style:normal;color:var(--soft);min-width:72px;text-align:right;font-variant-numeric:tabular-nums}\
.holds::before{content:'\\2713';color:var(--good);font-weight:700}.fails::before{content:'\\2717';color:var(--bad);font-weight:700}\
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:0 0 8px;padding:0;list-style:none;font-size:14px;color:var(--soft)}\
.legend i{display:inline-block;width:12px;height:12px;border-radius:3px;margin-right:6px;vertical-align:-1px}\
.figures{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:14px}@media(max-width:800px){.figures{grid-template-columns:minmax(0,1fr)}figure{overflow-x:auto}}@media(max-width:480px){main{padding:28px 14px 60px}figure{padding:11px 10px 8px}}\
figure{margin:0;padding:13px 16px 10px;background:var(--card);border:1px solid var(--line);border-radius:10px;min-width:0}\
figcaption{font-size:14px;font-weight:600;margin:0 0 8px}svg{display:block;width:100%;height:auto;font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}\
svg text{fill:var(--ink)}svg .tick,svg .axis{fill:var(--soft);font-size:11px}svg .group{font-size:12px}\
svg .value{font-size:11px;font-variant-numeric:tabular-nums}svg .of-published{fill:var(--soft)}svg .of-measured{font-weight:600}\
.grid{stroke:var(--line);stroke-width:1}\
.published{fill:var(--published);background:var(--published)}.measured{fill:var(--measured);background:var(--measured)}\
details{margin:16px 0 0}summary{cursor:pointer;color:var(--soft);font-size:14px}.scroll{overflow-x:auto;margin-top:8px}\
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}\
th,td{text-align:right;padding:4px 10px;border-bottom:1px solid var(--line);white-space:nowrap}\
th:first-child,td:first-child,th:nth-child(2),td:nth-child(2),th:last-child,td:last-child{text-align:left}th{color:var(--soft);font-weight:600}\
@media print{details>*{display:block}}";
