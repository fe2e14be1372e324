//! The template functions that depend on nothing but their arguments.

mod collections;
mod numbers;
mod resource_ids;
mod texts;

use serde_json::Value;

pub(super) use numbers::truth;
pub(super) use resource_ids::{ResourceIds, extension_resource_id, guid, path, tenant_resource_id};
use texts::text_of;

use crate::json::{kind, shorten};

/// The error is a message for the author of the template.
pub(super) type FunctionResult = Result<Value, String>;

type Function = fn(&[Value]) -> FunctionResult;

/// A function, and the smallest and largest number of its arguments.
type Entry = (&'static str, (usize, usize), Function);

const MANY: usize = usize::MAX;

const FUNCTIONS: &[Entry] = &[
    ("add", (2, 2), numbers::add),
    ("array", (1, 1), collections::array),
    ("bool", (1, 1), numbers::boolean),
    ("coalesce", (1, MANY), collections::coalesce),
    ("concat", (1, MANY), collections::concat),
    ("contains", (2, 2), collections::contains),
    ("createarray", (0, MANY), collections::create_array),
    ("createobject", (0, MANY), collections::create_object),
    ("div", (2, 2), numbers::div),
    ("empty", (1, 1), collections::empty),
    ("endswith", (2, 2), texts::ends_with),
    ("equals", (2, 2), collections::equals),
    ("false", (0, 0), |_| Ok(Value::Bool(false))),
    ("first", (1, 1), collections::first),
    ("format", (1, MANY), texts::format),
    ("greater", (2, 2), numbers::greater),
    ("greaterorequals", (2, 2), numbers::greater_or_equals),
    ("guid", (1, MANY), resource_ids::guid_of),
    ("indexof", (2, 2), texts::index_of),
    ("int", (1, 1), numbers::int),
    ("intersection", (2, MANY), collections::intersection),
    ("join", (2, 2), texts::join),
    ("json", (1, 1), texts::json),
    ("last", (1, 1), collections::last),
    ("lastindexof", (2, 2), texts::last_index_of),
    ("length", (1, 1), collections::length),
    ("less", (2, 2), numbers::less),
    ("lessorequals", (2, 2), numbers::less_or_equals),
    ("max", (1, MANY), numbers::max),
    ("min", (1, MANY), numbers::min),
    ("mod", (2, 2), numbers::modulo),
    ("mul", (2, 2), numbers::mul),
    ("not", (1, 1), numbers::not),
    ("null", (0, 0), |_| Ok(Value::Null)),
    ("padleft", (2, 3), texts::pad_left),
    ("range", (2, 2), collections::range),
    ("replace", (3, 3), texts::replace),
    ("skip", (2, 2), collections::skip),
    ("split", (2, 2), texts::split),
    ("startswith", (2, 2), texts::starts_with),
    ("string", (1, 1), texts::string),
    ("sub", (2, 2), numbers::sub),
    ("substring", (2, 3), texts::substring),
    ("take", (2, 2), collections::take),
    ("tolower", (1, 1), texts::to_lower),
    ("toupper", (1, 1), texts::to_upper),
    ("trim", (1, 1), texts::trim),
    ("true", (0, 0), |_| Ok(Value::Bool(true))),
    ("union", (2, MANY), collections::union),
    ("uniquestring", (1, MANY), resource_ids::unique_string),
];

/// Functions that depend on their context; the evaluator implements them.
pub(super) const OF_THE_EVALUATOR: &[&str] = &[
    "and",
    "deployment",
    "extensionresourceid",
    "if",
    "newguid",
    "or",
    "parameters",
    "reference",
    "resourcegroup",
    "resourceid",
    "subscription",
    "subscriptionresourceid",
    "tenant",
    "tenantresourceid",
    "utcnow",
    "variables",
];

/// Azure's other functions. They may occur in resources that Muster does not create, because those are not computed.
const ELSEWHERE: &[&str] = &[
    "base64",
    "base64tojson",
    "base64tostring",
    "cidrhost",
    "cidrsubnet",
    "copyindex",
    "datauri",
    "datauritostring",
    "datetimeadd",
    "datetimefromepoch",
    "datetimetoepoch",
    "environment",
    "filter",
    "flatten",
    "float",
    "getsecret",
    "items",
    "lambda",
    "lambdavariables",
    "listaccountsas",
    "listcredentials",
    "listkeys",
    "listsecrets",
    "listservicesas",
    "managementgroup",
    "map",
    "mapvalues",
    "objectkeys",
    "parsecidr",
    "pickzones",
    "providers",
    "reduce",
    "shallowmerge",
    "sort",
    "toobject",
    "tryget",
    "uri",
    "uricomponent",
    "uricomponenttostring",
];

fn find(name: &str) -> Option<&'static Entry> {
    FUNCTIONS.iter().find(|(known, ..)| *known == name)
}

/// Checks that the function is one that a template may contain.
pub(super) fn check_known(name: &str) -> Result<(), String> {
    let is_known =
        find(name).is_some() || OF_THE_EVALUATOR.contains(&name) || ELSEWHERE.contains(&name);
    if is_known { Ok(()) } else { Err(unknown(name)) }
}

fn unknown(name: &str) -> String {
    let computed = FUNCTIONS.iter().map(|(name, ..)| *name).chain(OF_THE_EVALUATOR.iter().copied());
    let mut computed: Vec<&str> = computed.collect();
    computed.sort_unstable();
    let what = if ELSEWHERE.contains(&name) { "is not supported" } else { "does not exist" };
    format!(
        "the function '{}' {what}; write the value itself, or use one of {}",
        shorten(name),
        computed.join(", ")
    )
}

pub(super) fn call(name: &str, arguments: &[Value]) -> FunctionResult {
    let Some((_, (least, most), function)) = find(name) else { return Err(unknown(name)) };
    check_count(name, arguments.len(), *least, *most)?;
    function(arguments).map_err(|why| format!("{name}(): {why}"))
}

pub(super) fn check_count(name: &str, got: usize, least: usize, most: usize) -> Result<(), String> {
    if (least..=most).contains(&got) {
        return Ok(());
    }
    let wanted = match (least, most) {
        (_, MANY) => format!("at least {least}"),
        (least, most) if least == most => least.to_string(),
        (least, most) => format!("{least} to {most}"),
    };
    Err(format!("{name}() has {got} arguments; give {wanted}"))
}

/// An error about an argument. It shows only the type of the value, because the value may be a secret.
fn wrong(value: &Value, wanted: &str) -> String {
    format!("an argument is {}; give {wanted}", kind(value))
}

fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| wrong(value, "a string"))
}

fn whole(value: &Value) -> Result<i64, String> {
    value.as_i64().ok_or_else(|| wrong(value, "a whole number"))
}

fn list(value: &Value) -> Result<&[Value], String> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(wrong(other, "an array")),
    }
}

/// A position in something of this `length`; a position beyond either end is that end.
fn clamp(number: i64, length: usize) -> usize {
    usize::try_from(number.max(0)).unwrap_or(usize::MAX).min(length)
}
