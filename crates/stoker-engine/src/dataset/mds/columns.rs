//! The columns of MDS shards: which are read, and what they are.

use crate::dataset::chat::MESSAGES;
use crate::recipe::Fields;

/// What is made of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dataset) enum Role {
    /// Nothing: it is passed over.
    Unread,
    /// A value of the record.
    Value,
    /// An image.
    Image,
    /// A list of images behind their sizes; the number of bytes before the count.
    Images(usize),
}

/// A column of a shard, in the order of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::dataset) struct Column {
    pub(in crate::dataset) name: String,
    pub(in crate::dataset) encoding: String,
    /// Its bytes where they are always as many.
    pub(in crate::dataset) size: Option<u64>,
    pub(in crate::dataset) role: Role,
    /// Its place among the columns of images, as the recipe has it.
    pub(in crate::dataset) order: usize,
}

/// All columns of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::dataset) struct Columns(pub(in crate::dataset) Vec<Column>);

impl Columns {
    /// What an index file says of columns; why they can't be read, where they can't.
    pub(in crate::dataset) fn new(
        names: &[String],
        encodings: &[String],
        sizes: &[Option<u64>],
        fields: &Fields,
    ) -> Result<Self, String> {
        if names.len() != encodings.len() || names.len() != sizes.len() {
            return Err("it has another number of columns than of encodings or sizes".to_owned());
        }
        let columns = names.iter().zip(encodings).zip(sizes).map(|((name, encoding), size)| {
            // As in the writer's own reader, a size of 0 is none.
            let size = size.filter(|size| *size > 0);
            let role = role(name, encoding, fields)?;
            let order = fields.images.iter().flatten().position(|image| image == name);
            let (name, encoding, order) = (name.clone(), encoding.clone(), order.unwrap_or(0));
            Ok(Column { name, encoding, size, role, order })
        });
        let columns = columns.collect::<Result<Vec<_>, String>>()?;
        let has = |name: &str| columns.iter().any(|it| it.name == name && it.role != Role::Unread);
        let wanted = [&fields.messages, &fields.question, &fields.answer].into_iter().flatten();
        let mut wanted = wanted.chain(fields.images.iter().flatten());
        let missing = wanted.find(|name| !has(name)).map(|name| format!("`{name}`"));
        let any = fields.answer.is_some() || MESSAGES.iter().any(|name| has(name));
        let missing = missing.or_else(|| {
            let wanted = MESSAGES.map(|name| format!("`{name}`")).join(" or ");
            (!any && fields.messages.is_none()).then_some(wanted)
        });
        match missing {
            None => Ok(Self(columns)),
            Some(missing) => {
                let names = names.iter().take(30).map(String::as_str).collect::<Vec<_>>();
                Err(format!("there is no column {missing}; the columns are {}", names.join(", ")))
            }
        }
    }

    /// The column of that name, if it is read.
    pub(in crate::dataset) fn named(&self, name: &str) -> Option<&Column> {
        self.0.iter().find(|column| column.name == name)
    }
}

fn role(name: &str, encoding: &str, fields: &Fields) -> Result<Role, String> {
    let is_image = match &fields.images {
        Some(names) => names.iter().any(|image| image == name),
        None => ["images", "image"].contains(&name),
    };
    let exchange = [&fields.messages, &fields.question, &fields.answer].into_iter().flatten();
    let is_named = exchange.into_iter().any(|field| field == name);
    let is_usual =
        (fields.messages.is_none() && fields.answer.is_none() && MESSAGES.contains(&name))
            || ["tools", "video", "videos"].contains(&name);
    let role = match encoding {
        "jpeg" | "png" | "bytes" if is_image => Role::Image,
        "list[jpeg]" | "list[png]" if is_image => Role::Images(4),
        "jpeg_array" | "jpegarray" if is_image => Role::Images(0),
        "str" | "json" if is_image || is_named || is_usual => Role::Value,
        "pkl" if is_image || is_named || is_usual => {
            return Err(format!(
                "the column `{name}` is pickled, and reading that can run any code: write it as \
                 str, json, jpeg or png"
            ));
        }
        _ if is_image || is_named || is_usual => {
            return Err(format!(
                "the column `{name}` is encoded as {encoding}, which is not read there"
            ));
        }
        _ => Role::Unread,
    };
    Ok(role)
}
