//! The compiled-in size data: `sizes.tsv`, one size per line, sorted by lower-cased name.
//!
//! The file is tab-separated so that a change of one size is a change of one line. `-` means
//! "none": no GPU model, no list price (it is then estimated), no retirement. A retirement is a
//! word and a date: `retired 2023-08-31` refuses creation, `announced 2025-09-30` only flags.

use super::price::{Price, PriceSource};
use super::{Retirement, VmSize};

const HEADER: &str = "name\tfamily\tvcpus\tmemory_mb\tgpus\tgpu_model\t\
                      dedicated_micro_usd_per_hour\tlow_priority_micro_usd_per_hour\tretirement";

/// A fault in the compiled-in data, which only a developer who edits it ever sees.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("sizes.tsv line {line}: {what}")]
pub(super) struct RowError {
    line: usize,
    what: &'static str,
}

/// All sizes of the file, in its order.
pub(super) fn parse(text: &str) -> Result<Vec<VmSize>, RowError> {
    let mut lines = text.lines();
    if lines.next() != Some(HEADER) {
        return Err(RowError { line: 1, what: "the header is not the expected one" });
    }
    // The header is line 1.
    let rows = lines.zip(2..);
    rows.map(|(row, line)| parse_row(row).map_err(|what| RowError { line, what })).collect()
}

fn parse_row(row: &str) -> Result<VmSize, &'static str> {
    let fields: Vec<&str> = row.split('\t').collect();
    let [name, family, vcpus, memory_mb, gpus, gpu_model, dedicated, low_priority, retirement] =
        fields.as_slice()
    else {
        return Err("there are not 9 columns");
    };
    let vcpus = vcpus.parse().map_err(|_| "vcpus is not a number")?;
    let memory_mb = memory_mb.parse().map_err(|_| "memory_mb is not a number")?;
    let gpus = gpus.parse().map_err(|_| "gpus is not a number")?;
    let gpu_model = present(gpu_model);
    if gpu_model.is_some() != (gpus > 0) {
        return Err("there must be a gpu_model exactly when there are gpus");
    }
    let price = match (parse_amount(dedicated)?, parse_amount(low_priority)?) {
        (Some(dedicated), low_priority) => Price::new(dedicated, low_priority, PriceSource::Listed),
        (None, None) => Price::estimate(family, vcpus, memory_mb, gpus, gpu_model),
        (None, Some(_)) => return Err("a low-priority price needs a dedicated one"),
    };
    Ok(VmSize {
        name: (*name).into(),
        family: (*family).into(),
        vcpus,
        memory_mb,
        gpus,
        gpu_model: gpu_model.map(Box::from),
        price,
        retirement: parse_retirement(retirement)?,
    })
}

fn present(field: &str) -> Option<&str> {
    (field != "-").then_some(field)
}

fn parse_amount(field: &str) -> Result<Option<u64>, &'static str> {
    let amount = present(field).map(str::parse).transpose();
    amount.map_err(|_| "a price is not a whole number of micro-USD")
}

fn parse_retirement(field: &str) -> Result<Retirement, &'static str> {
    let Some(retirement) = present(field) else {
        return Ok(Retirement::Current);
    };
    match retirement.split_once(' ') {
        Some(("announced", on)) => Ok(Retirement::Announced { on: on.into() }),
        Some(("retired", on)) => Ok(Retirement::Retired { on: on.into() }),
        _ => Err("the retirement is neither '-', 'announced DATE' nor 'retired DATE'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "Standard_X1\tfamilyX\t2\t3584\t0\t-\t-\t-\t-";

    fn check(row: &str, what: &'static str) {
        let text = format!("{HEADER}\n{GOOD}\n{row}\n");
        assert_eq!(parse(&text), Err(RowError { line: 3, what }), "{row}");
    }

    #[test]
    fn a_faulty_row_is_named_by_its_line() {
        check("Standard_X1\tfamilyX", "there are not 9 columns");
        check("X\tF\tmany\t1\t0\t-\t-\t-\t-", "vcpus is not a number");
        check("X\tF\t1\t3.5\t0\t-\t-\t-\t-", "memory_mb is not a number");
        check("X\tF\t1\t1\t\t-\t-\t-\t-", "gpus is not a number");
        let unmatched = "there must be a gpu_model exactly when there are gpus";
        check("X\tF\t1\t1\t1\t-\t-\t-\t-", unmatched);
        check("X\tF\t1\t1\t0\tV100\t-\t-\t-", unmatched);
        check("X\tF\t1\t1\t0\t-\t0.29\t-\t-", "a price is not a whole number of micro-USD");
        check("X\tF\t1\t1\t0\t-\t-\t5\t-", "a low-priority price needs a dedicated one");
        let retirement = "the retirement is neither '-', 'announced DATE' nor 'retired DATE'";
        check("X\tF\t1\t1\t0\t-\t-\t-\t2023-08-31", retirement);
    }

    #[test]
    fn the_header_is_checked() {
        assert_eq!(parse(GOOD).map_err(|error| error.line), Err(1));
    }
}
