package tablecrypt.jvm;

import java.nio.ByteBuffer;
import org.apache.parquet.format.PageType;

/**
 * Steps over a decrypted footer, which is in Thrift's compact protocol, to what it says of the versions of data pages:
 *
 *     FileMetaData 4: row_groups → RowGroup 1: columns → ColumnChunk 3: meta_data → ColumnMetaData 13: encoding_stats → 1: page_type
 *
 * The reader parses the footer anyway, and of a file with many columns this takes longer than to read a few of them. Steps take a tenth.
 */
class FooterPages {
  private static final int[] PATH = {4, 1, 3, 13, 1};
  private static final int NOT_ON_PATH = PATH.length + 1;
  private static final int BYTES_OF_DOUBLE = 8;

  private final ByteBuffer footer;
  private boolean found = false;

  private FooterPages(byte[] footer) {
    this.footer = ByteBuffer.wrap(footer);
  }

  /** Whether any column chunk whose metadata is in the footer has data pages of version 2; a RuntimeException if the footer is malformed. */
  static boolean hasVersion2(byte[] footer) {
    FooterPages pages = new FooterPages(footer);
    pages.struct(0);
    return pages.found;
  }

  /** Depth: how many fields of the path lead here. */
  private void struct(int depth) {
    long id = 0;
    for (int head = footer.get(); head != 0; head = footer.get()) {
      int step = (head >> 4) & 15;
      id = step == 0 ? signed(varint()) : id + step;
      boolean isOnPath = depth < PATH.length && id == PATH[depth];
      int type = head & 15;
      // A field of type boolean has its value in its type.
      if (type != 1 && type != 2) {
        value(type, isOnPath ? depth + 1 : NOT_ON_PATH);
      }
    }
  }

  private void value(int type, int depth) {
    switch (type) {
      case 1:
      case 2:
      case 3:
        step(1);
        break;
      case 4:
      case 5:
      case 6:
        number(depth);
        break;
      case 7:
        step(BYTES_OF_DOUBLE);
        break;
      case 8:
        step(varint());
        break;
      case 9:
      case 10:
        list(depth);
        break;
      case 12:
        struct(depth);
        break;
      default:
        // Maps, which no footer has.
        throw new IllegalArgumentException("a value of type " + type);
    }
  }

  private void number(int depth) {
    long number = signed(varint());
    found = found || (depth == PATH.length && number == PageType.DATA_PAGE_V2.getValue());
  }

  private void list(int depth) {
    int head = footer.get();
    int shortLength = (head >> 4) & 15;
    long length = shortLength == 15 ? varint() : shortLength;
    for (long index = 0; index < length; index++) {
      value(head & 15, depth);
    }
  }

  private void step(long bytes) {
    if (bytes < 0 || bytes > footer.remaining()) {
      throw new IllegalArgumentException("a value of " + bytes + " bytes");
    }
    footer.position(footer.position() + (int) bytes);
  }

  private long varint() {
    long number = 0;
    int shift = 0;
    int next = footer.get();
    while (next < 0) {
      number |= (next & 0x7fL) << shift;
      shift += 7;
      next = footer.get();
    }
    return number | ((long) next << shift);
  }

  private static long signed(long zigzag) {
    return (zigzag >>> 1) ^ -(zigzag & 1);
  }
}
