package tablecrypt.jvm;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.function.IntFunction;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.parquet.bytes.BytesUtils;
import org.apache.parquet.crypto.AesCipher;
import org.apache.parquet.crypto.AesMode;
import org.apache.parquet.crypto.FileDecryptionProperties;
import org.apache.parquet.crypto.ModuleCipherFactory;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.parquet.format.AesGcmV1;
import org.apache.parquet.format.EncryptionAlgorithm;
import org.apache.parquet.format.Util;

/**
 * An encrypted Parquet file whose end is fetched once, checked, and then given to its reader.
 *
 * file = modules of the columns | FileCryptoMetaData, encrypted footer, length (4, LE), "PARE"
 *        from storage             from memory: the very bytes that were checked
 *        (ModuleLengths)
 *
 * FileCryptoMetaData is plaintext and says by which algorithm pages are encrypted. Parquet believes it; a table's files are AES_GCM_V1 alone.
 * Parquet also believes the levels of data pages of version 2, which it leaves in the clear: who changes them turns values into nulls and
 * gives values to other rows. The footer says in which columns there are such pages.
 */
public class CheckedStream extends FSInputStream implements StreamCapabilities {
  private static final int TAIL_LENGTH = 8;
  private static final int MAGIC_LENGTH = 4;
  private static final int END_GUESS = 64 * 1024;
  /** A reader takes many times the length of a footer. With one that is longer than this part of all memory it would end, not read. */
  private static final int PART_OF_MEMORY = 16;
  private static final int AAD_FILE_UNIQUE_LENGTH = 8;
  /** Where streams that a thread opens count the bytes of encrypted columns that their readers take: a long[1]. */
  private static final ThreadLocal COUNT = new ThreadLocal();

  private final FSDataInputStream stored;
  private final String location;
  private final long length;
  private final byte[] end;
  private final long endStart;
  private final long[] count;
  private final FooterPages pages;
  private ModuleLengths modules;
  private long position = 0;

  CheckedStream(FSDataInputStream stored, long length, String location, ReadKeys.OfFile keys) throws IOException {
    this.stored = stored;
    this.length = length;
    this.location = location;
    if (length != keys.length()) {
      throw refusal("has " + length + " bytes, but the table's metadata says " + keys.length());
    }
    end = readEnd();
    endStart = length - end.length;
    long[] given = (long[]) COUNT.get();
    count = given == null ? new long[1] : given;
    pages = checked(keys.properties());
  }

  /** Have the streams that this thread opens from now on count what they read; null: nowhere. */
  static void countIn(long[] count) {
    if (count == null) {
      COUNT.remove();
    } else {
      COUNT.set(count);
    }
  }

  private byte[] readEnd() throws IOException {
    if (length < MAGIC_LENGTH + TAIL_LENGTH) {
      throw refusal("has " + length + " bytes, too few for an encrypted Parquet file");
    }
    int guess = (int) Math.min(length, END_GUESS);
    byte[] last = new byte[guess];
    stored.readFully(length - guess, last);
    if (last[guess - 4] != 'P' || last[guess - 3] != 'A' || last[guess - 2] != 'R' || last[guess - 1] != 'E') {
      throw refusal("does not end as an encrypted Parquet file does");
    }
    long needed = TAIL_LENGTH + Integer.toUnsignedLong(BytesUtils.readIntLittleEndian(last, guess - TAIL_LENGTH));
    if (needed > Math.min(length - MAGIC_LENGTH, Integer.MAX_VALUE)) {
      throw refusal("says that its footer is longer than it is itself");
    }
    if (needed > Math.max(guess, Runtime.getRuntime().maxMemory() / PART_OF_MEMORY)) {
      throw refusal("says that its footer has " + needed + " bytes, more than there is memory for");
    }
    byte[] whole = new byte[(int) needed];
    int missing = Math.max(0, whole.length - guess);
    if (missing > 0) {
      stored.readFully(length - needed, whole, 0, missing);
    }
    System.arraycopy(last, guess - (whole.length - missing), whole, missing, whole.length - missing);
    return whole;
  }

  private FooterPages checked(FileDecryptionProperties keys) throws IOException {
    ByteArrayInputStream content = new ByteArrayInputStream(end, 0, end.length - TAIL_LENGTH);
    EncryptionAlgorithm algorithm;
    try {
      algorithm = Util.readFileCryptoMetaData(content).getEncryption_algorithm();
    } catch (IOException malformed) {
      throw refusal("has malformed file crypto metadata");
    }
    if (!algorithm.isSetAES_GCM_V1()) {
      throw refusal(
          "says that it is written with AES_GCM_CTR_V1, which leaves pages unauthenticated; the files of a table are written with AES_GCM_V1,"
              + " so its plaintext file crypto metadata was changed");
    }
    byte[] unique = algorithm.getAES_GCM_V1().getAad_file_unique();
    if (unique == null || unique.length != AAD_FILE_UNIQUE_LENGTH) {
      throw refusal("has an aad_file_unique of another length than " + AAD_FILE_UNIQUE_LENGTH + " bytes");
    }
    byte[] footer = content.readAllBytes();
    // Parquet's decryptors make room for whatever length stands there: for one of changed bytes, memory ends, and with it the whole JVM.
    int lengthField = ModuleCipherFactory.SIZE_LENGTH;
    if (footer.length < lengthField || BytesUtils.readIntLittleEndian(footer, 0) != footer.length - lengthField) {
      throw refusal("says that its footer has another length than it has");
    }
    return checkedPages(decrypted(footer, algorithm.getAES_GCM_V1(), keys));
  }

  private static byte[] decrypted(byte[] footer, AesGcmV1 algorithm, FileDecryptionProperties keys) throws IOException {
    byte[] prefix = keys.getAADPrefix() == null ? algorithm.getAad_prefix() : keys.getAADPrefix();
    ByteArrayOutputStream aad = new ByteArrayOutputStream();
    if (prefix != null) {
      aad.write(prefix);
    }
    aad.write(algorithm.getAad_file_unique());
    byte[] footerAad = AesCipher.createFooterAAD(aad.toByteArray());
    return ModuleCipherFactory.getDecryptor(AesMode.GCM, keys.getFooterKey()).decrypt(footer, footerAad);
  }

  /** Every writer that leaves levels in the clear says of which versions its pages are. Columns under keys of their own are not read here. */
  private FooterPages checkedPages(byte[] footer) {
    FooterPages found;
    try {
      found = FooterPages.of(footer);
    } catch (RuntimeException malformed) {
      throw refusal("has a malformed footer");
    }
    if (found.hasVersion2()) {
      throw refusal("has pages of version 2, whose levels parquet-java leaves in the clear, so nothing authenticates them");
    }
    return found;
  }

  private ParquetCryptoRuntimeException refusal(String what) {
    return new ParquetCryptoRuntimeException(location + ": " + what);
  }

  public int read() throws IOException {
    byte[] one = new byte[1];
    return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
  }

  public int read(byte[] buffer, int offset, int wanted) throws IOException {
    if (wanted == 0) {
      return 0;
    }
    int found;
    if (position >= endStart) {
      found = fromEnd(position, buffer, offset, wanted);
    } else {
      if (stored.getPos() != position) {
        stored.seek(position);
      }
      found = counted(stored.read(buffer, offset, (int) Math.min(wanted, endStart - position)));
      follow(buffer, offset, found);
    }
    if (found > 0) {
      position += found;
    }
    return found;
  }

  public int read(long from, byte[] buffer, int offset, int wanted) throws IOException {
    if (wanted == 0) {
      return 0;
    }
    if (from >= endStart) {
      return fromEnd(from, buffer, offset, wanted);
    }
    return counted(stored.read(from, buffer, offset, (int) Math.min(wanted, endStart - from)));
  }

  /** Parquet seeks to where a module begins, and reads on from there. */
  private void follow(byte[] buffer, int offset, int found) {
    if (modules == null || modules.position() != position) {
      modules = new ModuleLengths(location, pages, endStart, position);
    }
    modules.follow(ByteBuffer.wrap(buffer, offset, Math.max(0, found)));
  }

  private int counted(int found) {
    count[0] += Math.max(0, found);
    return found;
  }

  private int fromEnd(long from, byte[] buffer, int offset, int wanted) {
    if (from >= length) {
      return -1;
    }
    int count = (int) Math.min(wanted, length - from);
    System.arraycopy(end, (int) (from - endStart), buffer, offset, count);
    return count;
  }

  public void readVectored(List ranges, IntFunction allocate) throws IOException {
    // The store may complete what a range of its own gives at any time: these are others.
    ArrayList ofStore = new ArrayList();
    for (int index = 0; index < ranges.size(); index++) {
      FileRange range = (FileRange) ranges.get(index);
      if (range.getOffset() + range.getLength() > endStart) {
        throw new EOFException(location + ": its columns reach into the footer");
      }
      count[0] += range.getLength();
      ofStore.add(FileRange.createFileRange(range.getOffset(), range.getLength()));
    }
    stored.readVectored(ofStore, allocate);
    for (int index = 0; index < ranges.size(); index++) {
      FileRange range = (FileRange) ranges.get(index);
      ModuleLengths lengths = new ModuleLengths(location, pages, endStart, range.getOffset());
      range.setData(((FileRange) ofStore.get(index)).getData().thenApply(lengths));
    }
  }

  public int minSeekForVectorReads() {
    return stored.minSeekForVectorReads();
  }

  public int maxReadSizeForVectorReads() {
    return stored.maxReadSizeForVectorReads();
  }

  public boolean hasCapability(String capability) {
    // Reads into ByteBuffers would go past the end in memory.
    boolean isOwn = capability.equals(StreamCapabilities.READBYTEBUFFER) || capability.equals(StreamCapabilities.PREADBYTEBUFFER);
    return !isOwn && stored.hasCapability(capability);
  }

  public void seek(long to) throws IOException {
    if (to < 0 || to > length) {
      throw new EOFException(location + ": there is no byte " + to);
    }
    position = to;
  }

  public long getPos() {
    return position;
  }

  public boolean seekToNewSource(long to) throws IOException {
    return stored.seekToNewSource(to);
  }

  public void close() throws IOException {
    stored.close();
  }
}
