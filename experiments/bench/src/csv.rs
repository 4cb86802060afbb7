//! Rows as comma-separated values (RFC 4180), with the columns of the JSON lines.
//!
//! An empty cell is `null`. Numbers, `true` and `false` stand as in JSON, texts as they are.
use anyhow::{Context, Result};
use csv::Terminator;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::fmt;

pub(crate) fn table<T: Serialize>(rows: impl IntoIterator<Item = T>) -> Result<Vec<u8>> {
    let mut table = csv::WriterBuilder::new().terminator(Terminator::CRLF).from_writer(Vec::new());
    for (number, row) in rows.into_iter().enumerate() {
        let Fields(fields) = serde_json::from_str(&serde_json::to_string(&row)?)
            .context("a row that is not an object")?;
        if number == 0 {
            table.write_record(fields.iter().map(|(name, _)| name))?;
        }
        table.write_record(fields.iter().map(cell).collect::<Result<Vec<_>>>()?)?;
    }
    Ok(table.into_inner()?)
}

fn cell((name, value): &(String, Value)) -> Result<String> {
    match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        Value::Array(_) | Value::Object(_) => anyhow::bail!("{name} is no plain value: {value}"),
    }
}

/// An object in the order in which it was written, which [`Value`] forgets.
#[derive(Debug)]
pub(crate) struct Fields(pub(crate) Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        from.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Line<'a> {
        zulu: u8,
        alpha: Option<f64>,
        text: &'a str,
    }

    #[test]
    fn columns_keep_their_order_and_texts_are_quoted_where_needed() {
        let line = |alpha, text| Line { zulu: 1, alpha, text };
        let text = table([line(Some(0.25), "a,\"b\""), line(None, "c")]).unwrap();
        let expected = "zulu,alpha,text\r\n1,0.25,\"a,\"\"b\"\"\"\r\n1,,c\r\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn nested_values_are_refused_by_name() {
        let row = serde_json::json!({ "list": [1] });
        let error = table([row]).unwrap_err().to_string();
        assert!(error.contains("list"), "{error}");
    }
}
