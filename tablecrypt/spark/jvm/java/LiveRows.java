package tablecrypt.jvm;

import java.io.DataInputStream;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.util.BitSet;
import org.apache.spark.sql.api.java.UDF2;
import org.roaringbitmap.PeekableIntIterator;
import org.roaringbitmap.RoaringBitmap;

/** Whether a row, by its file's number and its position in the file, is not deleted. A task asks once for each file that it reads. */
public class LiveRows implements UDF2 {
  private final String endpoint;
  private final String read;
  private transient Integer file;
  private transient BitSet deleted;

  LiveRows(String endpoint, String read) {
    this.endpoint = endpoint;
    this.read = read;
  }

  public Object call(Object number, Object position) throws IOException {
    if (!number.equals(file)) {
      deleted = bits(DriverClient.deletedPositions(endpoint, read, ((Integer) number).intValue()));
      file = (Integer) number;
    }
    return deleted.get(Math.toIntExact(((Long) position).longValue())) ? Boolean.FALSE : Boolean.TRUE;
  }

  static BitSet bits(byte[] roaring) throws IOException {
    RoaringBitmap bitmap = new RoaringBitmap();
    bitmap.deserialize(new DataInputStream(new ByteArrayInputStream(roaring)));
    BitSet bits = new BitSet();
    PeekableIntIterator positions = bitmap.getIntIterator();
    while (positions.hasNext()) {
      bits.set(positions.next());
    }
    return bits;
  }
}
