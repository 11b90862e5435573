//! A verdict on every published figure, and the figures that the model was fitted to.

use crate::outcome::{Options, Outcome};
use diorite_bench::Verdict;

/// Largest difference from the published figure, in percent.
const OFF_PERCENT: f64 = 15.0;

/// A figure that a parameter of the model was fitted to: beginning of the row, column, parameter.
pub(super) type Fitted = (&'static str, &'static str, &'static str);

impl Outcome {
    /// Give missed verdicts on published figures their reasons: beginning of the row, column, reason.
    pub(super) fn explain_missed(&mut self, reasons: &[(&str, &str, &str)]) {
        for (row, column, reason) in reasons {
            let is_meant = |verdict: &&mut Verdict| {
                !verdict.holds
                    && verdict.name.contains(&format!(": {row}"))
                    && verdict.name.contains(&format!(": {column},"))
            };
            for verdict in self.verdicts.iter_mut().filter(is_meant) {
                verdict.reason.get_or_insert_with(|| (*reason).to_owned());
            }
        }
    }

    /// Add a verdict on each line with a published figure, and notes on fitted figures and the amount of work.
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
                "Fitted to published figures (their verdicts are marked, and only prove the fit): {}.",
                parameters.join("; ")
            ));
        }
        self.notes.push(format!(
            "Amount: {} % of the published work (--amount). Rates and CPU shares are compared; times are scaled to the whole.",
            options.amount_percent
        ));
    }
}
