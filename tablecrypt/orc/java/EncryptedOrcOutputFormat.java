package tablecrypt.orc;

import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hive.ql.exec.FileSinkOperator;
import org.apache.hadoop.hive.ql.io.HiveOutputFormat;
import org.apache.hadoop.hive.ql.io.StatsProvidingRecordWriter;
import org.apache.hadoop.hive.ql.io.orc.OrcFile;
import org.apache.hadoop.hive.ql.io.orc.OrcInputFormat;
import org.apache.hadoop.hive.ql.io.orc.Writer;
import org.apache.hadoop.hive.serde2.SerDeStats;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfoFactory;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfoUtils;
import org.apache.hadoop.io.NullWritable;
import org.apache.hadoop.io.Writable;
import org.apache.hadoop.mapred.FileOutputFormat;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapred.RecordWriter;
import org.apache.hadoop.util.Progressable;
import org.apache.orc.TypeDescription;

/**
 * Hive's ORC with the columns encrypted that the table's properties name; Hive's own hands orc.encrypt and orc.mask to nobody.
 *
 * <p>What ORC would leave in the clear without a word is refused: no orc.encrypt, a mask of a column that is not encrypted, bloom filters.
 */
public final class EncryptedOrcOutputFormat extends FileOutputFormat<NullWritable, EncryptedOrcSerde.Row>
    implements HiveOutputFormat<NullWritable, EncryptedOrcSerde.Row> {

  @Override
  public FileSinkOperator.RecordWriter getHiveRecordWriter(
      JobConf job, Path path, Class<? extends Writable> kind, boolean compressed, Properties table, Progressable progress)
      throws IOException {
    String encrypt = table.getProperty("orc.encrypt", "");
    String mask = table.getProperty("orc.mask", "");
    OrcFile.WriterOptions options = OrcFile.writerOptions(table, job).setSchema(schemaOf(table));
    check(encrypt, mask, options.getBloomFilterColumns());
    options.encrypt(encrypt);
    options.masks(mask);
    return new Rows(path, options);
  }

  @Override
  public RecordWriter<NullWritable, EncryptedOrcSerde.Row> getRecordWriter(
      FileSystem ignored, JobConf job, String name, Progressable progress) throws IOException {
    throw new IOException("encrypted ORC is written by Hive's statements, which bring the table's properties along");
  }

  /** The table's columns. A row calls them by their numbers. */
  private static TypeDescription schemaOf(Properties table) {
    String delimiter = table.getProperty("column.name.delimiter", ",");
    List<String> names = Arrays.asList(table.getProperty("columns").split(Pattern.quote(delimiter)));
    List<TypeInfo> types = TypeInfoUtils.getTypeInfosFromTypeString(table.getProperty("columns.types"));
    return OrcInputFormat.convertTypeInfo(TypeInfoFactory.getStructTypeInfo(names, types));
  }

  private static void check(String encrypt, String mask, String bloomFilters) throws IOException {
    Set<String> encrypted = columnsIn(encrypt);
    if (encrypted.isEmpty()) {
      throw new IOException("the table has no property orc.encrypt that names a column");
    }
    Set<String> masked = columnsIn(mask);
    masked.removeAll(encrypted);
    if (!masked.isEmpty()) {
      throw new IOException("orc.mask names " + masked + " and orc.encrypt does not: ORC would write the values as they are");
    }
    if (bloomFilters != null && !bloomFilters.trim().isEmpty()) {
      throw new IOException("orc.bloom.filter.columns: ORC writes the bloom filters of encrypted columns in the clear");
    }
  }

  /** The columns in "key:column,column;key:column", or in the same with masks for keys. */
  private static Set<String> columnsIn(String choices) {
    Set<String> names = new TreeSet<>();
    for (String choice : choices.split(";")) {
      for (String name : choice.substring(choice.lastIndexOf(':') + 1).split(",")) {
        if (!name.trim().isEmpty()) {
          names.add(name.trim());
        }
      }
    }
    return names;
  }

  private static final class Rows implements StatsProvidingRecordWriter {

    private final Path path;
    private final OrcFile.WriterOptions options;
    private final SerDeStats statistics = new SerDeStats();
    private Writer writer;

    Rows(Path path, OrcFile.WriterOptions options) {
      this.path = path;
      this.options = options;
    }

    @Override
    public void write(Writable writable) throws IOException {
      EncryptedOrcSerde.Row row = (EncryptedOrcSerde.Row) writable;
      if (writer == null) {
        writer = OrcFile.createWriter(path, options.inspector(row.inspector));
      }
      writer.addRow(row.values);
    }

    @Override
    public void close(boolean abort) throws IOException {
      if (writer != null) {
        writer.close();
        statistics.setRowCount(writer.getNumberOfRows());
        statistics.setRawDataSize(writer.getRawDataSize());
      }
    }

    @Override
    public SerDeStats getStats() {
      return statistics;
    }
  }
}
