package tablecrypt.jvm;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.lang.reflect.Method;
import java.security.SecureRandom;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.column.ParquetProperties;
import org.apache.parquet.crypto.FileEncryptionProperties;
import org.apache.parquet.format.Util;
import org.apache.parquet.format.converter.ParquetMetadataConverter;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.api.WriteSupport;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.spark.sql.catalyst.InternalRow;
import org.slf4j.LoggerFactory;

/** One data file while it is written: Spark's own Parquet writer, footer and all columns encrypted under a DEK that no other file has. */
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
  private ParquetWriter writer;
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
    writer = new Builder(output, job).withConf(conf).withEncryption(encryption).build();
  }

  void add(InternalRow row) throws IOException {
    nans.add(row);
    writer.write(row);
  }

  /** Bytes written and still in memory. */
  long size() {
    return writer.getDataSize();
  }

  void close() throws IOException {
    writer.close();
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    Util.writeFileMetaData(new ParquetMetadataConverter().toParquetMetadata(FOOTER_VERSION, writer.getFooter()), content);
    footer = content.toByteArray();
    writer = null;
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

  private static class Builder extends ParquetWriter.Builder {
    private final WriteJob job;

    Builder(FileOutput output, WriteJob job) {
      super(output);
      this.job = job;
      // Arrow does not encrypt the levels of data pages of version 2, so no encrypted table has any (parquet_properties.py).
      withWriterVersion(ParquetProperties.WriterVersion.PARQUET_1_0);
      withCompressionCodec(CompressionCodecName.valueOf(job.text("parquet.compression")));
      withRowGroupSize(job.number("parquet.block.size"));
      withPageSize((int) job.number("parquet.page.size"));
      withPageRowCountLimit((int) job.number("parquet.page.row.count.limit"));
      withDictionaryPageSize((int) job.number("parquet.dictionary.page.size"));
      limitRows((int) job.number("parquet.block.row.count.limit"));
    }

    /** Spark 4.0 brings a Parquet whose row groups end by their size alone. */
    private void limitRows(int rows) {
      try {
        Method limit = ParquetWriter.Builder.class.getMethod("withRowGroupRowCountLimit", new Class[] {int.class});
        limit.invoke(this, new Object[] {Integer.valueOf(rows)});
      } catch (NoSuchMethodException error) {
        LoggerFactory.getLogger(EncryptedFile.class).debug("this Parquet does not limit the rows of a row group");
      } catch (ReflectiveOperationException error) {
        throw new IllegalStateException(error);
      }
    }

    protected ParquetWriter.Builder self() {
      return this;
    }

    protected WriteSupport getWriteSupport(Configuration conf) {
      return RowSupport.of(job);
    }
  }
}
