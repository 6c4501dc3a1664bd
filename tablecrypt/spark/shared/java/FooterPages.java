package tablecrypt.jvm;

import java.nio.ByteBuffer;
import java.util.TreeSet;
import org.apache.parquet.format.PageType;

/**
 * Steps over a decrypted footer, which is in Thrift's compact protocol, to what it says of the versions of data pages and where chunks are:
 *
 *     FileMetaData 4: row_groups → RowGroup 1: columns → ColumnChunk 3: meta_data → ColumnMetaData 13: encoding_stats → 1: page_type
 *                                                                                                  9: data_page_offset
 *                                                                                                 11: dictionary_page_offset
 *
 * The reader parses the footer anyway, and of a file with many columns this takes longer than to read a few of them. Steps take a tenth.
 */
class FooterPages {
  private static final int[] PATH = {4, 1, 3, 13, 1};
  private static final int NOT_ON_PATH = PATH.length + 1;
  private static final int COLUMN_METADATA = 3;
  private static final int DATA_PAGE_OFFSET = 9;
  private static final int DICTIONARY_PAGE_OFFSET = 11;
  private static final int OFFSET = -1;
  private static final int BYTES_OF_DOUBLE = 8;

  private final ByteBuffer footer;
  private final TreeSet offsets = new TreeSet();
  private boolean found = false;

  private FooterPages(byte[] footer) {
    this.footer = ByteBuffer.wrap(footer);
  }

  /** What a footer says; a RuntimeException if it is malformed. */
  static FooterPages of(byte[] footer) {
    FooterPages pages = new FooterPages(footer);
    pages.struct(0);
    return pages;
  }

  /** Whether any column chunk whose metadata is in the footer has data pages of version 2. */
  boolean hasVersion2() {
    return found;
  }

  /** Where the first page behind this place begins that is the first of a column chunk, or its first behind the dictionary; else the end. */
  long nextChunk(long place, long end) {
    Long next = (Long) offsets.higher(Long.valueOf(place));
    return next == null ? end : Math.min(next.longValue(), end);
  }

  /** Depth: how many fields of the path lead here, or that this is an offset. */
  private void struct(int depth) {
    long id = 0;
    for (int head = footer.get(); head != 0; head = footer.get()) {
      int step = (head >> 4) & 15;
      id = step == 0 ? signed(varint()) : id + step;
      boolean isOnPath = depth < PATH.length && id == PATH[depth];
      int type = head & 15;
      // A field of type boolean has its value in its type.
      if (type != 1 && type != 2) {
        boolean isOffset = depth == COLUMN_METADATA && (id == DATA_PAGE_OFFSET || id == DICTIONARY_PAGE_OFFSET);
        value(type, isOnPath ? depth + 1 : isOffset ? OFFSET : NOT_ON_PATH);
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
    if (depth == OFFSET) {
      offsets.add(Long.valueOf(number));
    }
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
