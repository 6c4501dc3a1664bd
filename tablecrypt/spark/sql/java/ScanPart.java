package tablecrypt.jvm;

import org.apache.spark.sql.connector.read.InputPartition;

/** The files that one task reads. */
class ScanPart implements InputPartition {
  final ScanFile[] files;

  ScanPart(ScanFile[] files) {
    this.files = files;
  }
}
