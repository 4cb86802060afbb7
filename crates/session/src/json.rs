//! JSON details: a `type` tag without buffering, bounded lists, 64-bit values as hex text.
//!
//! serde's internally tagged enums read the whole message into a tree first, and a tree of `[0,0,0,…`
//! is 16 times as large as its text. Here the text is read twice instead: once for the tag, once
//! straight into the type.
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use catchment_verbs::{Endpoint, Gid, NetEnd};
use serde::de::value::{CowStrDeserializer, MapAccessDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde::{Deserialize, Deserializer, Serialize};

/// Reads the tag of a message and ignores the rest.
pub(crate) fn tag_of(text: &str) -> Result<Cow<'_, str>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Tag<'a> {
        #[serde(borrow, rename = "type")]
        tag: Cow<'a, str>,
    }
    serde_json::from_str::<Tag<'_>>(text).map(|tag| tag.tag)
}

/// Reads `text` into `T`, skipping the member `type`.
pub(crate) fn body<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let body = deserializer.deserialize_map(Untagged(PhantomData))?;
    deserializer.end()?;
    Ok(body)
}

struct Untagged<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Untagged<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a member \"type\"")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(WithoutTag(map)))
    }
}

/// The members of an object without `type`.
struct WithoutTag<A>(A);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for WithoutTag<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.0.next_key::<Cow<'de, str>>()? {
            if key != "type" {
                return seed.deserialize(CowStrDeserializer::new(key)).map(Some);
            }
            self.0.next_value::<IgnoredAny>()?;
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.0.next_value_seed(seed)
    }
}

/// Reads a list of at most `MAX` elements and stops at the first one too many.
pub(crate) fn list<'de, D, T, const MAX: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(Bounded::<T, MAX>(PhantomData))
}

struct Bounded<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Bounded<T, MAX> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element()? {
            if elements.len() == MAX {
                return Err(A::Error::custom(format_args!("a list has more than {MAX} elements")));
            }
            elements.push(element);
        }
        Ok(elements)
    }
}

/// A 64-bit value as 16 hexadecimal digits: many JSON readers keep only 53 bits of a number.
pub(crate) mod hex64 {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{value:016x}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        let well_formed = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let value = well_formed.then(|| u64::from_str_radix(&text, 16).ok());
        value.flatten().ok_or_else(|| {
            let seen = crate::names::printable(&text, 32);
            D::Error::custom(format_args!(
                "\"{seen}\" is not a 64-bit value: 16 hexadecimal digits are needed"
            ))
        })
    }
}

/// A [`catchment_verbs::Gid`] as 32 hexadecimal digits.
pub(crate) mod gid_json {
    use catchment_verbs::Gid;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(gid: &Gid, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(gid)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Gid, D::Error> {
        std::borrow::Cow::<str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// A [`catchment_verbs::PacketKey`] as 32 hexadecimal digits, or nothing.
mod key_json {
    use catchment_verbs::{Gid, PacketKey};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        key: &Option<PacketKey>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match key {
            // Sixteen bytes are written as those of a GID are.
            Some(key) => super::gid_json::serialize(&Gid(key.0), serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<PacketKey>, D::Error> {
        Ok(Some(PacketKey(super::gid_json::deserialize(deserializer)?.0)))
    }
}

/// A [`NetEnd`] as `{udp_port, path_mtu, extensions}`, with `key` if it has one, or nothing.
pub(crate) mod net_json {
    use catchment_verbs::{NetEnd, PacketKey};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(remote = "NetEnd", deny_unknown_fields)]
    struct NetJson {
        udp_port: u16,
        path_mtu: u32,
        extensions: u32,
        #[serde(with = "super::key_json", default, skip_serializing_if = "Option::is_none")]
        key: Option<PacketKey>,
    }

    #[derive(Serialize, Deserialize)]
    struct Net(#[serde(with = "NetJson")] NetEnd);

    pub(crate) fn serialize<S: Serializer>(
        net: &Option<NetEnd>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        net.map(Net).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<NetEnd>, D::Error> {
        Ok(Option::<Net>::deserialize(deserializer)?.map(|Net(net)| net))
    }
}

/// An [`Endpoint`] as `{gid, qpn, psn, net}`.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Endpoint", deny_unknown_fields)]
pub(crate) struct EndpointJson {
    #[serde(with = "gid_json")]
    gid: Gid,
    qpn: u32,
    psn: u32,
    #[serde(with = "net_json", default, skip_serializing_if = "Option::is_none")]
    net: Option<NetEnd>,
}
