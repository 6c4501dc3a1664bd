package tablecrypt.jvm;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.security.SecureRandom;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.crypto.FileEncryptionProperties;
import org.apache.parquet.format.Util;
import org.apache.parquet.format.converter.ParquetMetadataConverter;
import org.apache.parquet.hadoop.metadata.ParquetMetadata;
import org.apache.spark.sql.catalyst.InternalRow;

/** One data file while it is written: Parquet's own pages, footer and all columns encrypted under a DEK that no other file has. */
public class EncryptedFile extends NewFile {
  private static final SecureRandom RANDOM = new SecureRandom();
  private static final int AAD_PREFIX_LENGTH = 16;
  private static final int FOOTER_VERSION = 1;
  private static final int OF_SPARK = 0;

  private final WriteJob job;
  private final String location;
  private final byte[] partition;
  private final byte[] dek;
  private final byte[] aadPrefix = new byte[AAD_PREFIX_LENGTH];
  private final NanCounts nans;
  private FileOutput output;
  private RowGroups groups;
  private byte[] footer;

  EncryptedFile(WriteJob job, String location, byte[] partition) {
    this.job = job;
    this.location = location;
    this.partition = partition;
    dek = new byte[(int) job.number(WriteJob.DEK_LENGTH)];
    RANDOM.nextBytes(dek);
    RANDOM.nextBytes(aadPrefix);
    nans = new NanCounts(job.schema());
  }

  void open(Configuration conf) throws IOException {
    output = new FileOutput(location, conf);
    FileEncryptionProperties encryption = FileEncryptionProperties.builder(dek).withAADPrefix(aadPrefix).withoutAADPrefixStorage().build();
    groups = new RowGroups(job, output, conf, encryption);
  }

  void add(InternalRow row) throws IOException {
    nans.add(row);
    groups.add(row);
  }

  /** Bytes written and still in memory. */
  long size() {
    return groups.size();
  }

  void close() throws IOException {
    ParquetMetadata written = groups.close();
    groups = null;
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    Util.writeFileMetaData(new ParquetMetadataConverter().toParquetMetadata(FOOTER_VERSION, written), content);
    footer = content.toByteArray();
  }

  void remove() throws IOException {
    if (output != null) {
      output.remove();
    }
  }

  void describe(DataOutputStream out) throws IOException {
    out.writeByte(OF_SPARK);
    writeBytes(out, location.getBytes("UTF-8"));
    out.writeLong(output.length());
    writeBytes(out, dek);
    writeBytes(out, aadPrefix);
    writeBytes(out, partition);
    nans.describe(out);
    writeBytes(out, footer);
  }
}
