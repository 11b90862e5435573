//! A verdict on every published figure that is shown, and what the model was fitted to.

use super::{Options, Outcome};
use crate::Verdict;

/// How far a figure may be off the published one, in percent.
const OFF_PERCENT: f64 = 15.0;

/// A figure that a parameter of the model was chosen by: row (its beginning), column, and the parameter.
pub(super) type Fitted = (&'static str, &'static str, &'static str);

impl Outcome {
    /// Judge each line beside its published figure, holding or not, and say what was fitted and how much of the work was done.
    pub(super) fn judge_published(&mut self, table: &str, fitted: &[Fitted], options: &Options) {
        for line in &self.lines {
            let Some(published) = line.published else { continue };
            let is_fitted =
                fitted.iter().any(|(row, column, _)| line.row.starts_with(row) && line.column == *column);
            let mark = if is_fitted { " (fitted)" } else { "" };
            let name =
                format!("{table}: {}: {}, percent off the published figure{mark}", line.row, line.column);
            let off = (line.measured / published - 1.0).abs() * 100.0;
            self.verdicts.push(Verdict::at_most(name, OFF_PERCENT, off));
        }
        let parameters: Vec<String> = fitted
            .iter()
            .map(|(row, column, parameter)| format!("{parameter}: to \u{201c}{row}: {column}\u{201d}"))
            .collect();
        if parameters.is_empty() {
            self.notes.push("No parameter of the model was fitted to a figure of this table.".to_owned());
        } else {
            self.notes.push(format!(
                "Fitted to published figures (their verdicts are marked, and prove nothing but the fit): {}.",
                parameters.join("; ")
            ));
        }
        self.notes.push(format!(
            "Amount: {} % of the published work was done (--amount); rates and CPU shares are compared, not times, unless a time is \
             scaled to the whole.",
            options.amount_percent
        ));
    }
}
