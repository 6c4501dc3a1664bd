import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.security.SecureRandom;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import javax.crypto.Cipher;
import javax.crypto.spec.GCMParameterSpec;
import javax.crypto.spec.SecretKeySpec;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.ColumnDecryptionProperties;
import org.apache.parquet.crypto.ColumnEncryptionProperties;
import org.apache.parquet.crypto.FileDecryptionProperties;
import org.apache.parquet.crypto.FileEncryptionProperties;
import org.apache.parquet.crypto.ParquetCipher;
import org.apache.parquet.crypto.keytools.KmsClient;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.example.data.simple.SimpleGroupFactory;
import org.apache.parquet.hadoop.ParquetReader;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.example.ExampleParquetWriter;
import org.apache.parquet.hadoop.example.GroupReadSupport;
import org.apache.parquet.hadoop.metadata.ColumnPath;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.MessageTypeParser;

/**
 * parquet-java, asked over standard input. A command is one line, its words divided by tabs; the answer is lines, the last of them "ok" or
 * "error" with what was thrown.
 *
 *   write  path  property=value ...              100 rows, encrypted as the properties say
 *   read   path  property=value ...              rows, keys found by the properties
 *   open   path  aad  footerKey  column=key ...  rows, under given keys; aad and keys in base64, "-" for none
 *   save   path  rows  rowsOfAPage  algorithm  "encrypted" or "plaintext" footer  "given", "stored" or "none"  aad  footerKey  column=key ...
 *                                                a new file under given keys, of the rows in a file: id, name and ratio divided by tabs
 */
public class ParquetPeer {
    private static final MessageType SCHEMA =
            MessageTypeParser.parseMessageType("message rows { required int64 id; optional binary name (STRING); required double ratio; }");

    public static void main(String[] arguments) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            try {
                answer(line.split("\t"));
                System.out.println("ok");
            } catch (Throwable problem) {
                System.out.println("error " + chain(problem).replace('\n', ' '));
            }
            System.out.flush();
        }
    }

    /** What was thrown, and its causes: the last one says what is wrong. */
    private static String chain(Throwable problem) {
        return problem.getCause() == null ? String.valueOf(problem) : problem + " | " + chain(problem.getCause());
    }

    private static void answer(String[] words) throws Exception {
        switch (words[0]) {
            case "write" -> write(new Path(words[1]), configuration(words));
            case "read" -> print(ParquetReader.builder(new GroupReadSupport(), new Path(words[1])).withConf(configuration(words)));
            case "open" -> print(ParquetReader.builder(new GroupReadSupport(), new Path(words[1])).withDecryption(keys(words)));
            case "save" -> save(words);
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private static Configuration configuration(String[] words) {
        Configuration configuration = new Configuration();
        configuration.set("parquet.crypto.factory.class", "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory");
        configuration.setClass("parquet.encryption.kms.client.class", Kms.class, KmsClient.class);
        configuration.setClassLoader(ParquetPeer.class.getClassLoader());
        for (int at = 2; at < words.length; at++) {
            String[] pair = words[at].split("=", 2);
            configuration.set(pair[0], pair[1]);
        }
        return configuration;
    }

    private static void write(Path path, Configuration configuration) throws Exception {
        try (ParquetWriter<Group> writer = ExampleParquetWriter.builder(path).withConf(configuration).withType(SCHEMA).build()) {
            SimpleGroupFactory groups = new SimpleGroupFactory(SCHEMA);
            for (long id = 0; id < 100; id++) {
                Group group = groups.newGroup().append("id", id);
                if (id % 5 != 0) {
                    group.append("name", "name " + id % 7);
                }
                writer.write(group.append("ratio", id / 3.0));
            }
        }
    }

    private static void save(String[] words) throws Exception {
        ExampleParquetWriter.Builder builder = ExampleParquetWriter.builder(new Path(words[1]))
                .withConf(new Configuration()).withType(SCHEMA).withEncryption(encryption(words)).withPageRowCountLimit(Integer.parseInt(words[3]));
        try (ParquetWriter<Group> writer = builder.build()) {
            SimpleGroupFactory groups = new SimpleGroupFactory(SCHEMA);
            for (String line : Files.readAllLines(Paths.get(words[2]))) {
                String[] row = line.split("\t");
                Group group = groups.newGroup().append("id", Long.parseLong(row[0]));
                if (!row[1].equals("null")) {
                    group.append("name", row[1]);
                }
                writer.write(group.append("ratio", Double.parseDouble(row[2])));
            }
        }
    }

    private static FileEncryptionProperties encryption(String[] words) {
        FileEncryptionProperties.Builder builder =
                FileEncryptionProperties.builder(bytes(words[8])).withAlgorithm(ParquetCipher.valueOf(words[4]));
        if (words[5].equals("plaintext")) {
            builder = builder.withPlaintextFooter();
        }
        if (!words[6].equals("none")) {
            builder = builder.withAADPrefix(bytes(words[7]));
        }
        if (words[6].equals("given")) {
            builder = builder.withoutAADPrefixStorage();
        }
        Map<ColumnPath, ColumnEncryptionProperties> columns = new HashMap<>();
        for (int at = 9; at < words.length; at++) {
            String[] pair = words[at].split("=", 2);
            ColumnPath path = ColumnPath.fromDotString(pair[0]);
            columns.put(path, ColumnEncryptionProperties.builder(path).withKey(bytes(pair[1])).build());
        }
        // Else the columns that are not named are not encrypted.
        return (columns.isEmpty() ? builder : builder.withEncryptedColumns(columns).withCompleteColumnEncryption()).build();
    }

    private static void print(ParquetReader.Builder<Group> builder) throws Exception {
        try (ParquetReader<Group> reader = builder.build()) {
            for (Group row = reader.read(); row != null; row = reader.read()) {
                String name = row.getFieldRepetitionCount("name") == 0 ? "null" : row.getString("name", 0);
                System.out.println("row\t" + row.getLong("id", 0) + "\t" + name + "\t" + row.getDouble("ratio", 0));
            }
        }
    }

    private static FileDecryptionProperties keys(String[] words) {
        FileDecryptionProperties.Builder builder = FileDecryptionProperties.builder().withFooterKey(bytes(words[3]));
        if (!words[2].equals("-")) {
            builder = builder.withAADPrefix(bytes(words[2]));
        }
        Map<ColumnPath, ColumnDecryptionProperties> columns = new HashMap<>();
        for (int at = 4; at < words.length; at++) {
            String[] pair = words[at].split("=", 2);
            ColumnPath path = ColumnPath.fromDotString(pair[0]);
            columns.put(path, ColumnDecryptionProperties.builder(path).withKey(bytes(pair[1])).build());
        }
        return (columns.isEmpty() ? builder : builder.withColumnKeys(columns)).build();
    }

    private static byte[] bytes(String base64) {
        return Base64.getDecoder().decode(base64);
    }

    /** Master keys in the property "test.master.keys", as "id:key,id:key"; wraps as parquet-java's own test KMS does. */
    public static class Kms implements KmsClient {
        private final Map<String, byte[]> keys = new HashMap<>();

        @Override
        public void initialize(Configuration configuration, String instanceId, String instanceUrl, String accessToken) {
            for (String pair : configuration.get("test.master.keys").split(",")) {
                keys.put(pair.split(":")[0], bytes(pair.split(":")[1]));
            }
        }

        @Override
        public String wrapKey(byte[] key, String masterKeyId) {
            byte[] nonce = new byte[12];
            new SecureRandom().nextBytes(nonce);
            byte[] ciphertext = run(Cipher.ENCRYPT_MODE, masterKeyId, nonce, key);
            byte[] wrapped = new byte[nonce.length + ciphertext.length];
            System.arraycopy(nonce, 0, wrapped, 0, nonce.length);
            System.arraycopy(ciphertext, 0, wrapped, nonce.length, ciphertext.length);
            return Base64.getEncoder().encodeToString(wrapped);
        }

        @Override
        public byte[] unwrapKey(String wrapped, String masterKeyId) {
            byte[] all = bytes(wrapped);
            byte[] nonce = java.util.Arrays.copyOf(all, 12);
            return run(Cipher.DECRYPT_MODE, masterKeyId, nonce, java.util.Arrays.copyOfRange(all, 12, all.length));
        }

        private byte[] run(int mode, String masterKeyId, byte[] nonce, byte[] content) {
            try {
                Cipher cipher = Cipher.getInstance("AES/GCM/NoPadding");
                cipher.init(mode, new SecretKeySpec(keys.get(masterKeyId), "AES"), new GCMParameterSpec(128, nonce));
                cipher.updateAAD(masterKeyId.getBytes(StandardCharsets.UTF_8));
                return cipher.doFinal(content);
            } catch (java.security.GeneralSecurityException problem) {
                throw new IllegalStateException(problem);
            }
        }
    }
}
