//! The operations: S3's semantics over a backend.
//!
//! Reads and listings wait as the profile says; writes don't, so that a store is filled quickly.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::dto::{
    Bucket, ChecksumMode, ChecksumType, CommonPrefix, CreateBucketInput, CreateBucketOutput,
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject,
    ETag, ETagCondition, EncodingType, GetObjectInput, GetObjectOutput, HeadBucketInput,
    HeadBucketOutput, HeadObjectInput, HeadObjectOutput, ListBucketsInput, ListBucketsOutput,
    ListObjectsV2Input, ListObjectsV2Output, PutObjectInput, PutObjectOutput, StreamingBlob,
};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{S3, S3Error, S3ErrorCode, S3Request, S3Response, S3Result, s3_error};

use crate::backend::{Backend, Meta, Object};
use crate::body::{self, Pace};
use crate::checksum;
use crate::faults::Meeting;
use crate::issuer::{Book, Issuer, Verdict};
use crate::listing::{Page, Query, last_before, page};
use crate::server::{Counters, Credentials, InFlight};
use crate::shaping::{Behaviour, Line, Shaping, target};

/// Most entries of a page.
const MAX_KEYS: i32 = 1000;
/// What `encoding-type=url` leaves as it is.
const URL: AsciiSet =
    NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) backend: Arc<Backend>,
    pub(crate) shaping: Arc<Shaping>,
    pub(crate) line: Option<Arc<Line>>,
    pub(crate) counters: Arc<Counters>,
}

/// The one key pair, and those that an issuer gives out.
struct Keys(Credentials, Option<Arc<Book>>);

#[async_trait::async_trait]
impl S3Auth for Keys {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        if access_key == self.0.access_key_id {
            return Ok(self.0.secret_access_key.as_str().into());
        }
        match self.1.as_ref().map_or(Verdict::Unknown, |book| book.judge(access_key)) {
            Verdict::Good => Ok(Book::secret(access_key).into()),
            Verdict::Ended => Err(s3_error!(ExpiredToken, "The provided token has expired.")),
            Verdict::Unknown => Err(s3_error!(InvalidAccessKeyId)),
        }
    }
}

/// Who may come in: whoever signs with the one key pair, and others if they are allowed.
struct Door {
    /// The one that needs no token.
    access_key_id: String,
    unsigned: bool,
}

#[async_trait::async_trait]
impl S3Access for Door {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let Some(credentials) = context.credentials() else {
            if self.unsigned {
                return Ok(());
            }
            return Err(s3_error!(AccessDenied, "unsigned requests are not allowed"));
        };
        let id = &credentials.access_key;
        let token = context.headers().get("x-amz-security-token");
        if *id == self.access_key_id || token.is_some_and(|it| *it == Book::token(id).as_str()) {
            return Ok(());
        }
        Err(s3_error!(InvalidToken))
    }
}

impl Store {
    pub(crate) fn serve(
        self,
        credentials: &Credentials,
        issuer: Option<&Issuer>,
        unsigned: bool,
    ) -> S3Service {
        let mut builder = S3ServiceBuilder::new(self);
        builder.set_auth(Keys(credentials.clone(), issuer.map(Issuer::book)));
        builder.set_access(Door { access_key_id: credentials.access_key_id.clone(), unsigned });
        builder.build()
    }

    async fn meet(&self, target: &str) -> Behaviour {
        let behaviour = self.shaping.decide(target);
        if !behaviour.first_byte.is_zero() {
            tokio::time::sleep(behaviour.first_byte).await;
        }
        behaviour
    }

    fn bucket(&self, bucket: &str) -> S3Result<()> {
        if self.backend.has_bucket(bucket) { Ok(()) } else { Err(s3_error!(NoSuchBucket)) }
    }

    fn object(&self, bucket: &str, key: &str, meeting: &Meeting) -> S3Result<Object> {
        self.bucket(bucket)?;
        let found = self.backend.get(bucket, key).map_err(internal)?;
        let mut object = found.ok_or_else(|| s3_error!(NoSuchKey))?;
        object.meta.etag = meeting.etag(bucket, key, object.meta.etag);
        Ok(object)
    }
}

#[async_trait::async_trait]
impl S3 for Store {
    async fn get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let in_flight = InFlight::begin(&self.counters);
        let meeting = Meeting::of(&request.extensions);
        let input = request.input;
        let asked = input.range.map(|range| match range {
            s3s::dto::Range::Int { first, last } => first..last.unwrap_or(u64::MAX),
            s3s::dto::Range::Suffix { length } => u64::MAX - length..u64::MAX,
        });
        let behaviour = self.meet(&target(&input.bucket, &input.key, asked.as_ref())).await;
        let Object { meta, source } = self.object(&input.bucket, &input.key, &meeting)?;
        check(&meta, input.if_match.as_ref(), input.if_none_match.as_ref())?;
        let range = input.range.map(|range| satisfy(range, meta.size)).transpose()?;
        let range = range.filter(|_| !meeting.ignores_range());
        let source = match &range {
            Some(range) => source.slice(range),
            None => source,
        };
        // As S3 has it, parts have none.
        let checksum = match (&input.checksum_mode, &range) {
            (Some(mode), None) if mode.as_str() == ChecksumMode::ENABLED => {
                Some(checksum::crc64nvme(&source).map_err(internal)?)
            }
            _ => None,
        };
        let length = source.len();
        let pace = Pace { rate: behaviour.rate, line: self.line.clone() };
        let body = body::stream(source, pace, Arc::clone(&self.counters), in_flight);
        Ok(S3Response::new(GetObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            body: Some(body),
            checksum_type: checksum.is_some().then(full_object),
            checksum_crc64nvme: checksum,
            content_length: Some(length as i64),
            content_range: range.map(|range| content_range(&range, meta.size)),
            content_type: Some("binary/octet-stream".to_owned()),
            last_modified: Some(meta.modified.into()),
            e_tag: Some(ETag::Strong(meta.etag)),
            ..Default::default()
        }))
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let meeting = Meeting::of(&request.extensions);
        let input = request.input;
        self.meet(&target(&input.bucket, &input.key, None)).await;
        let meta = self.object(&input.bucket, &input.key, &meeting)?.meta;
        check(&meta, input.if_match.as_ref(), input.if_none_match.as_ref())?;
        let range = input.range.map(|range| satisfy(range, meta.size)).transpose()?;
        let length = range.as_ref().map_or(meta.size, |range| range.end - range.start);
        Ok(S3Response::new(HeadObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: Some(length as i64),
            content_range: range.map(|range| content_range(&range, meta.size)),
            content_type: Some("binary/octet-stream".to_owned()),
            last_modified: Some(meta.modified.into()),
            e_tag: Some(ETag::Strong(meta.etag)),
            ..Default::default()
        }))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let meeting = Meeting::of(&request.extensions);
        let input = request.input;
        self.meet(&target(&input.bucket, input.prefix.as_deref().unwrap_or_default(), None)).await;
        self.bucket(&input.bucket)?;
        let token = input.continuation_token.as_deref().map(from_token).transpose()?;
        let max_keys = input.max_keys.unwrap_or(MAX_KEYS).clamp(0, MAX_KEYS);
        let limit = meeting.page_size().unwrap_or(MAX_KEYS as usize).min(max_keys as usize);
        let start = input.start_after.clone().unwrap_or_default();
        let prefix = input.prefix.as_deref().unwrap_or_default();
        let query = |after| Query { prefix, delimiter: input.delimiter.as_deref(), after, limit };
        let made = |after| {
            page(&query(after), |after, limit| {
                self.backend.list(&input.bucket, prefix, after, limit)
            })
        };
        let again = token.as_ref().filter(|_| meeting.repeats_page());
        let found = match again {
            Some(end) => last_before(end, start, made),
            None => made(token.unwrap_or(start)),
        };
        let mut page = found.map_err(internal)?;
        for (key, meta) in &mut page.objects {
            meta.etag = meeting.etag(&input.bucket, key, std::mem::take(&mut meta.etag));
        }
        Ok(S3Response::new(listed(input, max_keys, page)))
    }

    async fn list_buckets(
        &self,
        _request: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        let names = self.backend.buckets().map_err(internal)?;
        let bucket = |name| Bucket { name: Some(name), ..Default::default() };
        let buckets = Some(names.into_iter().map(bucket).collect());
        Ok(S3Response::new(ListBucketsOutput { buckets, ..Default::default() }))
    }

    async fn head_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        self.bucket(&request.input.bucket)?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        let bucket = request.input.bucket;
        self.backend.create_bucket(&bucket).map_err(internal)?;
        let location = Some(format!("/{bucket}"));
        Ok(S3Response::new(CreateBucketOutput { location }))
    }

    async fn put_object(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let input = request.input;
        self.bucket(&input.bucket)?;
        let bytes = collect(input.body).await?;
        if input.content_length.is_some_and(|length| length as usize != bytes.len()) {
            return Err(s3_error!(IncompleteBody));
        }
        let meta = self.backend.put(&input.bucket, &input.key, bytes).map_err(|error| {
            if error.kind() == io::ErrorKind::InvalidInput {
                s3_error!(InvalidArgument, "a folder can't hold an object of this name")
            } else {
                internal(error)
            }
        })?;
        let e_tag = Some(ETag::Strong(meta.etag));
        Ok(S3Response::new(PutObjectOutput { e_tag, ..Default::default() }))
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let input = request.input;
        self.bucket(&input.bucket)?;
        self.backend.delete(&input.bucket, &input.key).map_err(internal)?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let input = request.input;
        self.bucket(&input.bucket)?;
        let mut deleted = Vec::new();
        for object in input.delete.objects {
            self.backend.delete(&input.bucket, &object.key).map_err(internal)?;
            deleted.push(DeletedObject { key: Some(object.key), ..Default::default() });
        }
        let deleted = Some(deleted);
        Ok(S3Response::new(DeleteObjectsOutput { deleted, ..Default::default() }))
    }
}

fn full_object() -> ChecksumType {
    ChecksumType::from_static(ChecksumType::FULL_OBJECT)
}

fn internal(error: io::Error) -> S3Error {
    S3Error::with_source(S3ErrorCode::InternalError, Box::new(error))
}

async fn collect(body: Option<StreamingBlob>) -> S3Result<Bytes> {
    let Some(mut body) = body else { return Ok(Bytes::new()) };
    let mut bytes = BytesMut::new();
    while let Some(chunk) = body
        .try_next()
        .await
        .map_err(|error| S3Error::with_source(S3ErrorCode::IncompleteBody, error))?
    {
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}

/// The conditions that a read comes with.
fn check(
    meta: &Meta,
    if_match: Option<&ETagCondition>,
    if_none_match: Option<&ETagCondition>,
) -> S3Result<()> {
    let is = |condition: &ETagCondition| match condition {
        ETagCondition::Any => true,
        ETagCondition::ETag(etag) => etag.value() == meta.etag,
    };
    if if_match.is_some_and(|condition| !is(condition)) {
        return Err(s3_error!(PreconditionFailed));
    }
    if if_none_match.is_some_and(is) {
        return Err(s3_error!(NotModified));
    }
    Ok(())
}

/// The bytes that a range means in an object of that size.
fn satisfy(range: s3s::dto::Range, size: u64) -> S3Result<Range<u64>> {
    let range = range.check(size).map_err(|_| s3_error!(InvalidRange))?;
    if range.is_empty() { Err(s3_error!(InvalidRange)) } else { Ok(range) }
}

fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end - 1)
}

fn listed(input: ListObjectsV2Input, max_keys: i32, page: Page<Meta>) -> ListObjectsV2Output {
    let as_url =
        input.encoding_type.as_ref().is_some_and(|kind| kind.as_str() == EncodingType::URL);
    let text = |text: String| {
        if as_url { utf8_percent_encode(&text, &URL).to_string() } else { text }
    };
    let contents = page.objects.into_iter().map(|(key, meta)| s3s::dto::Object {
        key: Some(text(key)),
        size: Some(meta.size as i64),
        e_tag: Some(ETag::Strong(meta.etag)),
        last_modified: Some(meta.modified.into()),
        ..Default::default()
    });
    let contents: Vec<_> = contents.collect();
    let prefixes =
        page.prefixes.into_iter().map(|prefix| CommonPrefix { prefix: Some(text(prefix)) });
    let prefixes: Vec<_> = prefixes.collect();
    ListObjectsV2Output {
        key_count: Some((contents.len() + prefixes.len()) as i32),
        max_keys: Some(max_keys),
        is_truncated: Some(page.next.is_some()),
        next_continuation_token: page.next.as_deref().map(to_token),
        contents: Some(contents),
        common_prefixes: Some(prefixes),
        name: Some(input.bucket),
        prefix: Some(text(input.prefix.unwrap_or_default())),
        delimiter: input.delimiter.map(text),
        start_after: input.start_after.map(text),
        continuation_token: input.continuation_token,
        encoding_type: input.encoding_type,
        ..Default::default()
    }
}

/// Where a page ended, in characters that any XML and URL can carry.
fn to_token(after: &str) -> String {
    utf8_percent_encode(after, NON_ALPHANUMERIC).to_string().replace('%', "_")
}

fn from_token(token: &str) -> S3Result<String> {
    let bytes = token.replace('_', "%");
    let decoded = percent_encoding::percent_decode_str(&bytes).decode_utf8();
    let after = decoded.map_err(|_| s3_error!(InvalidArgument, "not a continuation token"))?;
    Ok(after.into_owned())
}
