//! iceberg-rust reads key metadata, AGS1 streams, and of tables the manifest lists and manifests. It decrypts no data files.
//!
//! It speaks as adapters/protocol.py says. Of a table it answers how many files the manifests list, and how many records in them.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, stdin};
use std::path::Path;
use std::sync::Arc;

use aes_gcm::aead::{Aead, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce};
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use iceberg::encryption::{
    EncryptedInputFile, GeneratedKey, KeyManagementClient, SensitiveBytes, StandardKeyMetadata,
};
use iceberg::io::FileIO;
use iceberg::spec::{DataContentType, SnapshotRef, TableMetadata};
use iceberg::table::Table;
use iceberg::{Error, ErrorKind, Result, Runtime, TableIdent};
use serde_json::{Value, json};

const NAME: &str = "iceberg-rust";
const VERSION: &str = "0.10.1";
const KEY_ID_LENGTH: usize = 36;
const NONCE_LENGTH: usize = 12;
const TAG_LENGTH: usize = 16;

/// The master keys of keys.json, by alias and by key id.
#[derive(Debug)]
struct KitKms {
    keys: HashMap<String, (String, Vec<u8>)>,
}

impl KitKms {
    /// `held`: the aliases that a case says the reader may use; by default all.
    fn new(key_file: &Path, held: &Value) -> Self {
        let content: Value =
            serde_json::from_slice(&fs::read(key_file).expect("the key file")).expect("JSON");
        let mut keys = HashMap::new();
        for entry in content["master_keys"].as_array().expect("master_keys") {
            if held.as_array().is_some_and(|held| !held.contains(&entry["alias"])) {
                continue;
            }
            let key_id = text(entry, "key_id").to_string();
            let key = STANDARD.decode(text(entry, "key_base64")).expect("base64");
            keys.insert(
                text(entry, "alias").to_string(),
                (key_id.clone(), key.clone()),
            );
            keys.insert(key_id.clone(), (key_id, key));
        }
        Self { keys }
    }
}

#[async_trait]
impl KeyManagementClient for KitKms {
    async fn wrap_key(&self, _key: &[u8], _wrapping_key_id: &str) -> Result<Vec<u8>> {
        Err(Error::new(
            ErrorKind::FeatureUnsupported,
            "the kit is only read",
        ))
    }

    async fn unwrap_key(&self, wrapped: &[u8], wrapping_key_id: &str) -> Result<SensitiveBytes> {
        let refused = |reason: &str| Error::new(ErrorKind::DataInvalid, format!("KMS: {reason}"));
        let (key_id, key) = self
            .keys
            .get(wrapping_key_id)
            .ok_or_else(|| refused("no such master key"))?;
        if wrapped.len() < KEY_ID_LENGTH + NONCE_LENGTH + TAG_LENGTH
            || !wrapped.starts_with(key_id.as_bytes())
        {
            return Err(refused("InvalidCiphertext"));
        }

        let (nonce, rest) = wrapped[KEY_ID_LENGTH..].split_at(NONCE_LENGTH);
        let (tag, ciphertext) = rest.split_at(TAG_LENGTH);
        let cipher =
            Aes256Gcm::new_from_slice(key).map_err(|_| refused("a master key has 32 bytes"))?;
        cipher
            .decrypt(
                Nonce::from_slice(nonce),
                [ciphertext, tag].concat().as_slice(),
            )
            .map(SensitiveBytes::new)
            .map_err(|_| refused("InvalidCiphertext"))
    }

    fn supports_key_generation(&self) -> bool {
        false
    }

    async fn generate_key(&self, _wrapping_key_id: &str) -> Result<GeneratedKey> {
        Err(Error::new(
            ErrorKind::FeatureUnsupported,
            "the kit is only read",
        ))
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name]
        .as_str()
        .unwrap_or_else(|| panic!("{name} is no text"))
}

fn bytes_of(value: &Value, name: &str) -> Vec<u8> {
    let digits = text(value, name);
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal"))
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn key_metadata(case: &Value) -> Result<Value> {
    let metadata = StandardKeyMetadata::decode(&fs::read(text(case, "file")).expect("the file"))?;
    let length = metadata
        .file_length()
        .map_or("None".to_string(), |length| length.to_string());
    let prefix = hex(metadata.aad_prefix().unwrap_or_default());
    plaintext(
        case,
        format!(
            "{}|{prefix}|{length}",
            hex(metadata.encryption_key().as_bytes())
        )
        .as_bytes(),
    )
}

async fn stream(case: &Value) -> Result<Value> {
    let mut key = StandardKeyMetadata::new(&bytes_of(case, "key"))
        .with_aad_prefix(&bytes_of(case, "aad_prefix"));
    if let Some(length) = case["file_length"].as_u64() {
        key = key.with_file_length(length);
    }
    let input = FileIO::new_with_fs().new_input(format!("file://{}", text(case, "file")))?;
    plaintext(case, &EncryptedInputFile::new(input, key).read().await?)
}

fn plaintext(case: &Value, bytes: &[u8]) -> Result<Value> {
    fs::write(text(case, "out"), bytes).expect("a file for the plaintext");
    Ok(json!({"result": "plaintext"}))
}

async fn table(case: &Value) -> Result<Value> {
    if case["needs"]
        .as_array()
        .is_some_and(|needs| needs.contains(&json!("pins")))
    {
        return Ok(json!({"result": "unsupported", "message": "iceberg-rust pins nothing"}));
    }

    let metadata: TableMetadata =
        serde_json::from_slice(&fs::read(text(case, "metadata")).expect("metadata.json"))
            .map_err(|error| Error::new(ErrorKind::DataInvalid, error.to_string()))?;
    let table = Table::builder()
        .identifier(TableIdent::from_strs(["db", "t"])?)
        .metadata(metadata)
        .metadata_location(text(case, "metadata"))
        .file_io(FileIO::new_with_fs())
        .kms_client(Arc::new(KitKms::new(Path::new(text(case, "key_file")), &case["keys"])))
        .runtime(Runtime::current())
        .readonly(true)
        .build()?;

    let Some(snapshot) = snapshot_of(&table, case)? else {
        return Ok(json!({"result": "files", "files": 0, "records": 0}));
    };
    let (mut files, mut records) = (0u64, 0u64);
    for manifest_file in table
        .manifest_list_reader(&snapshot)
        .load()
        .await?
        .entries()
    {
        for entry in manifest_file
            .load_manifest(table.file_io())
            .await?
            .entries()
        {
            if !entry.is_alive() {
                continue;
            }
            files += 1;
            if entry.content_type() == DataContentType::Data {
                records += entry.data_file().record_count();
            }
        }
    }
    Ok(json!({"result": "files", "files": files, "records": records}))
}

fn snapshot_of(table: &Table, case: &Value) -> Result<Option<SnapshotRef>> {
    let metadata = table.metadata();
    let found = match (case["snapshot_id"].as_i64(), case["ref"].as_str()) {
        (Some(id), _) => metadata.snapshot_by_id(id),
        (None, Some(name)) => metadata.snapshot_for_ref(name),
        (None, None) => return Ok(metadata.current_snapshot().cloned()),
    };
    found
        .cloned()
        .map(Some)
        .ok_or_else(|| Error::new(ErrorKind::DataInvalid, "no such snapshot"))
}

/// The class of an error, by what the message and its causes say.
fn class_of(message: &str) -> &'static str {
    let known = [
        (
            "tampered",
            [
                "AES-GCM decryption failed",
                "InvalidCiphertext",
                "too short",
                "Truncated encrypted file",
            ]
            .as_slice(),
        ),
        ("key-denied", &["no such master key"]),
        ("key", &["Encryption key '", "KEK"]),
        ("missing", &["No such file"]),
        (
            "format",
            &[
                "Failed to decode key metadata",
                "Empty key metadata",
                "Cannot resolve schema for version",
            ],
        ),
    ];
    known
        .iter()
        .find(|(_, words)| words.iter().any(|word| message.contains(word)))
        .map_or("other", |(class, _)| class)
}

async fn answer(case: &Value) -> Value {
    let read = match text(case, "level") {
        "table" => table(case).await,
        "ags1" => stream(case).await,
        _ => key_metadata(case).await,
    };
    read.unwrap_or_else(|error| {
        let message = format!("{error:#}")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        json!({"result": "refused", "class": class_of(&message), "message": message})
    })
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .expect("a runtime");
    println!(
        "{}",
        json!({"name": NAME, "version": VERSION, "levels": ["table", "ags1", "key-metadata"]})
    );
    for line in stdin().lock().lines() {
        let case: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        println!("{}", runtime.block_on(answer(&case)));
    }
}
