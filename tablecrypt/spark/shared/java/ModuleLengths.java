package tablecrypt.jvm;

import java.nio.ByteBuffer;
import java.util.function.Function;
import org.apache.parquet.crypto.AesCipher;
import org.apache.parquet.crypto.ModuleCipherFactory;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;

/**
 * Follows the encrypted modules of a file, from where one begins, through the bytes that its reader gets:
 *
 *     length (4, LE) | nonce, ciphertext, tag | length (4, LE) | …
 *
 * Lengths are in the clear. Parquet's decryptors make room for whatever length stands before a page's header or an index, and authenticate it
 * later: for one of changed bytes memory ends, and with it the whole JVM. So a module reaches into no other column chunk.
 */
class ModuleLengths implements Function {
  private static final int SHORTEST = AesCipher.NONCE_LENGTH + AesCipher.GCM_TAG_LENGTH;

  private final String location;
  private final FooterPages pages;
  private final long end;
  private long position;
  private long ofModule = 0;
  private long length = 0;
  private int seen = 0;

  /**
   * @param end where the last module ends
   * @param position where one begins
   */
  ModuleLengths(String location, FooterPages pages, long end, long position) {
    this.location = location;
    this.pages = pages;
    this.end = end;
    this.position = position;
  }

  /** Where the next bytes are from. */
  long position() {
    return position;
  }

  /** Check what is read in another thread: a ByteBuffer, which stays as it is. */
  public Object apply(Object read) {
    follow((ByteBuffer) ((ByteBuffer) read).duplicate());
    return read;
  }

  /** Check the next bytes. */
  void follow(ByteBuffer bytes) {
    while (bytes.hasRemaining()) {
      if (ofModule > 0) {
        int step = (int) Math.min(ofModule, bytes.remaining());
        bytes.position(bytes.position() + step);
        position += step;
        ofModule -= step;
      } else {
        length |= (bytes.get() & 0xffL) << (Byte.SIZE * seen);
        position++;
        seen++;
        if (seen == ModuleCipherFactory.SIZE_LENGTH) {
          begin();
        }
      }
    }
  }

  private void begin() {
    long most = pages.nextChunk(position, end) - position;
    if (length < SHORTEST || length > most) {
      throw new ParquetCryptoRuntimeException(
          location + ": says that an encrypted module has " + length + " bytes, where " + SHORTEST + " to " + most + " can be");
    }
    ofModule = length;
    length = 0;
    seen = 0;
  }
}
