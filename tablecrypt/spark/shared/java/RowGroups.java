package tablecrypt.jvm;

import java.io.IOException;
import java.util.HashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.column.ColumnWriteStore;
import org.apache.parquet.column.ParquetProperties;
import org.apache.parquet.crypto.FileEncryptionProperties;
import org.apache.parquet.hadoop.CodecFactory;
import org.apache.parquet.hadoop.ColumnChunkPageWriteStore;
import org.apache.parquet.hadoop.ParquetFileWriter;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.hadoop.metadata.ParquetMetadata;
import org.apache.parquet.schema.MessageType;
import org.apache.spark.sql.catalyst.InternalRow;

/** The row groups of a file: rows are columns in memory until there are enough of them, in bytes or in rows. */
class RowGroups {
  /** Of the rows until the bytes are looked at again: as few, and as many, as Parquet's own writer lets pass. */
  private static final long FEWEST_ROWS = ParquetProperties.DEFAULT_MINIMUM_RECORD_COUNT_FOR_CHECK;
  private static final long MOST_ROWS = ParquetProperties.DEFAULT_MAXIMUM_RECORD_COUNT_FOR_CHECK;
  /** A file has no blocks that a row group would have to keep within. */
  private static final int NO_PADDING = 0;

  private final MessageType schema;
  private final ParquetProperties properties;
  private final FileRecords records;
  private final CodecFactory codecs;
  private final CompressionCodecName codec;
  private final ParquetFileWriter file;
  private final long bytesOfGroup;
  private final long rowsOfGroup;
  private ColumnChunkPageWriteStore pages;
  private ColumnWriteStore columns;
  private int finished = 0;
  private long finishedBytes = 0;
  private long rows = 0;
  private long nextCheck = FEWEST_ROWS;

  RowGroups(WriteJob job, FileOutput output, Configuration conf, FileEncryptionProperties encryption) throws IOException {
    RowSupport support = RowSupport.of(job);
    schema = support.init(conf).getSchema();
    properties = properties(job);
    records = FlatRecords.fits(job.schema(), schema) ? new FlatRecords(job.schema(), schema) : new NestedRecords(support, schema);
    codecs = new CodecFactory(conf, properties.getPageSizeThreshold());
    codec = CompressionCodecName.valueOf(job.text("parquet.compression"));
    bytesOfGroup = job.number("parquet.block.size");
    rowsOfGroup = job.number("parquet.block.row.count.limit");
    file = new ParquetFileWriter(
        output, schema, ParquetFileWriter.Mode.CREATE, bytesOfGroup, NO_PADDING, properties.getColumnIndexTruncateLength(),
        properties.getStatisticsTruncateLength(), properties.getPageWriteChecksumEnabled(), encryption);
    file.start();
    startGroup();
  }

  private static ParquetProperties properties(WriteJob job) {
    return ParquetProperties.builder()
        // This writer leaves the levels of data pages of version 2 in the clear: CheckedStream reads no such file.
        .withWriterVersion(ParquetProperties.WriterVersion.PARQUET_1_0)
        .withPageSize((int) job.number("parquet.page.size"))
        .withPageRowCountLimit((int) job.number("parquet.page.row.count.limit"))
        .withDictionaryPageSize((int) job.number("parquet.dictionary.page.size"))
        .build();
  }

  void add(InternalRow row) throws IOException {
    records.add(row);
    rows++;
    if (rows >= rowsOfGroup || (rows >= nextCheck && isFull())) {
      finishGroup();
      startGroup();
    }
  }

  /** Whether two more rows might be too many. If not, the bytes are looked at again halfway to where they will be, as far as they tell. */
  private boolean isFull() {
    long bytes = columns.getBufferedSize();
    long bytesOfRow = Math.max(1, bytes / rows);
    if (bytes > bytesOfGroup - 2 * bytesOfRow) {
      return true;
    }
    nextCheck = Math.min(Math.max(FEWEST_ROWS, (rows + bytesOfGroup / bytesOfRow) / 2), rows + MOST_ROWS);
    return false;
  }

  private void startGroup() {
    pages = new ColumnChunkPageWriteStore(
        codecs.getCompressor(codec), schema, properties.getAllocator(), properties.getColumnIndexTruncateLength(),
        properties.getPageWriteChecksumEnabled(), file.getEncryptor(), finished);
    columns = properties.newColumnWriteStore(schema, pages, pages);
    records.begin(columns);
    nextCheck = Math.min(Math.max(FEWEST_ROWS, rows / 2), MOST_ROWS);
    rows = 0;
  }

  private void finishGroup() throws IOException {
    records.end();
    if (rows > 0) {
      file.startBlock(rows);
      columns.flush();
      pages.flushToFileWriter(file);
      file.endBlock();
      finished++;
      finishedBytes = file.getPos();
    }
    columns.close();
    pages.close();
  }

  /** Bytes written and still in memory. */
  long size() {
    return finishedBytes + columns.getBufferedSize();
  }

  /** Finish the file. */
  ParquetMetadata close() throws IOException {
    finishGroup();
    file.end(new HashMap());
    codecs.release();
    return file.getFooter();
  }
}
