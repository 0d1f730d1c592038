import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.UUID;
import java.util.function.Function;
import org.apache.iceberg.transforms.Transform;
import org.apache.iceberg.transforms.Transforms;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;

/**
 * Prints what the Iceberg Java library's partition transforms make of edge and random values, always the same ones: type,
 * transform, value, result, separated by tabs. Numbers, times and unscaled decimals are in decimal, texts (UTF-8) and bytes in
 * hex.
 */
public final class TransformValues {
  private static final int RANDOM_VALUES = 24;
  private static final Random RANDOM = new Random(1970);

  private TransformValues() {}

  public static void main(String[] args) {
    ints();
    longs();
    decimals();
    times();
    texts();
    bytes();
  }

  private static void print(Type type, List<?> values, Map<String, Transform<Object, ?>> transforms) {
    for (Map.Entry<String, Transform<Object, ?>> transform : new TreeMap<>(transforms).entrySet()) {
      Function<Object, ?> bound = transform.getValue().bind(type)::apply;
      for (Object value : values) {
        String name = type.toString().replace(" ", "");
        System.out.println(
            name + "\t" + transform.getKey() + "\t" + text(value) + "\t" + text(bound.apply(value)));
      }
    }
  }

  private static String text(Object value) {
    if (value instanceof BigDecimal decimal) {
      return decimal.unscaledValue().toString();
    } else if (value instanceof CharSequence text) {
      return HexFormat.of().formatHex(text.toString().getBytes(StandardCharsets.UTF_8));
    } else if (value instanceof ByteBuffer bytes) {
      byte[] copy = new byte[bytes.remaining()];
      bytes.duplicate().get(copy);
      return HexFormat.of().formatHex(copy);
    } else if (value instanceof UUID uuid) {
      return uuid.toString().replace("-", "");
    }
    return value.toString();
  }

  private static Map<String, Transform<Object, ?>> numeric() {
    return Map.of(
        "bucket[16]", Transforms.bucket(16),
        "truncate[1]", Transforms.truncate(1),
        "truncate[10]", Transforms.truncate(10),
        "truncate[2147483647]", Transforms.truncate(Integer.MAX_VALUE));
  }

  private static void ints() {
    List<Object> values = new ArrayList<>();
    for (int value : new int[] {0, 1, -1, 9, 10, -9, -10, -11, 34, Integer.MAX_VALUE, Integer.MIN_VALUE, -2147483647}) {
      values.add(value);
    }
    for (int i = 0; i < RANDOM_VALUES; i++) {
      values.add(RANDOM.nextInt());
    }
    print(Types.IntegerType.get(), values, numeric());
  }

  private static void longs() {
    List<Object> values = new ArrayList<>();
    for (long value : new long[] {0, 1, -1, -9, -10, -11, 34, 1L << 31, Long.MAX_VALUE, Long.MIN_VALUE, -Long.MAX_VALUE}) {
      values.add(value);
    }
    for (int i = 0; i < RANDOM_VALUES; i++) {
      values.add(RANDOM.nextLong() >> RANDOM.nextInt(64));
    }
    print(Types.LongType.get(), values, numeric());
    values.removeIf(value -> (Long) value < 0 || (Long) value >= 86_400_000_000L);
    values.add(86_399_999_999L);
    print(Types.TimeType.get(), values, Map.of("bucket[7]", Transforms.bucket(7)));
  }

  private static void decimals() {
    for (int[] type : new int[][] {{9, 2}, {18, 0}, {38, 10}}) {
      List<Object> values = new ArrayList<>();
      BigInteger limit = BigInteger.TEN.pow(type[0]).subtract(BigInteger.ONE);
      for (String value : new String[] {"0", "1", "-1", "127", "128", "-128", "-129", "255", "-1065", "1420", "32768"}) {
        values.add(new BigDecimal(new BigInteger(value), type[1]));
      }
      values.add(new BigDecimal(limit, type[1]));
      values.add(new BigDecimal(limit.negate(), type[1]));
      for (int i = 0; i < RANDOM_VALUES; i++) {
        BigInteger random = new BigInteger(1 + RANDOM.nextInt(limit.bitLength() - 1), RANDOM);
        values.add(new BigDecimal(RANDOM.nextBoolean() ? random : random.negate(), type[1]));
      }
      print(
          Types.DecimalType.of(type[0], type[1]),
          values,
          Map.of("bucket[100]", Transforms.bucket(100), "truncate[50]", Transforms.truncate(50)));
    }
  }

  private static Map<String, Transform<Object, ?>> dates() {
    return Map.of(
        "year", Transforms.year(), "month", Transforms.month(), "day", Transforms.day(), "bucket[4]", Transforms.bucket(4));
  }

  private static void times() {
    List<Object> days = new ArrayList<>();
    // Around the epoch, a leap day, the ends of months and years, and years far away.
    for (int day : new int[] {0, 1, -1, 30, 31, 364, 365, -31, -32, -365, -366, 789, 790, -25508, -25509, 11016, 11017, 47541}) {
      days.add(day);
    }
    for (int day : new int[] {-719162, -719163, 2932896, 2932897, -5000000, 5000000}) {
      days.add(day);
    }
    for (int i = 0; i < RANDOM_VALUES; i++) {
      days.add(RANDOM.nextInt(200_000) - 100_000);
    }
    print(Types.DateType.get(), days, dates());

    long dayMicros = 86_400_000_000L;
    List<Object> micros = new ArrayList<>();
    for (long value : new long[] {0, 1, -1, 999_999, 1_000_000, -999_999, -1_000_000, -1_000_001, 3_599_999_999L, -3_600_000_001L}) {
      micros.add(value);
    }
    for (Object day : days) {
      long start = (Integer) day * dayMicros;
      micros.add(start);
      micros.add(start - 1);
      micros.add(start + RANDOM.nextLong(dayMicros));
    }
    Map<String, Transform<Object, ?>> timestamps =
        Map.of(
            "year", Transforms.year(), "month", Transforms.month(), "day", Transforms.day(), "hour", Transforms.hour(),
            "bucket[4]", Transforms.bucket(4));
    print(Types.TimestampType.withoutZone(), micros, timestamps);
    print(Types.TimestampType.withZone(), micros, timestamps);

    List<Object> nanos = new ArrayList<>();
    for (Object value : micros) {
      long micro = (Long) value;
      if (Math.abs(micro) < Long.MAX_VALUE / 1001) {
        nanos.add(micro * 1000 - nanos.size() % 2);
      }
    }
    print(Types.TimestampNanoType.withoutZone(), nanos, timestamps);
    print(Types.TimestampNanoType.withZone(), nanos.subList(0, 40), timestamps);
  }

  private static void texts() {
    List<Object> values = new ArrayList<>();
    values.addAll(List.of("", "a", "iceberg", "äöü", "日本語の文字", "a\ud83d\ude00b\ud83d\ude00c", "\u0000", "e\u0301x"));
    for (int i = 0; i < RANDOM_VALUES; i++) {
      StringBuilder text = new StringBuilder();
      for (int n = RANDOM.nextInt(12); n > 0; n--) {
        int character = RANDOM.nextInt(0x11000);
        text.appendCodePoint(Character.isSurrogate((char) character) ? 'x' : character);
      }
      values.add(text.toString());
    }
    print(
        Types.StringType.get(),
        values,
        Map.of(
            "bucket[16]", Transforms.bucket(16), "truncate[1]", Transforms.truncate(1), "truncate[3]", Transforms.truncate(3)));
  }

  private static byte[] random(int length) {
    byte[] bytes = new byte[length];
    RANDOM.nextBytes(bytes);
    return bytes;
  }

  private static void bytes() {
    List<Object> values = new ArrayList<>();
    List<Object> fixed = new ArrayList<>();
    List<Object> uuids = new ArrayList<>();
    values.add(ByteBuffer.wrap(new byte[0]));
    values.add(ByteBuffer.wrap(new byte[] {-1, -1, -1}));
    uuids.add(UUID.fromString("f79c3e09-677c-4bbd-a479-3f349cb785e7"));
    uuids.add(new UUID(0, 0));
    uuids.add(new UUID(-1, -1));
    for (int i = 0; i < RANDOM_VALUES; i++) {
      values.add(ByteBuffer.wrap(random(i)));
      fixed.add(ByteBuffer.wrap(random(7)));
      uuids.add(new UUID(RANDOM.nextLong(), RANDOM.nextLong()));
    }
    Map<String, Transform<Object, ?>> bucket = Map.of("bucket[16]", Transforms.bucket(16));
    print(Types.BinaryType.get(), values, bucket);
    print(Types.BinaryType.get(), values, Map.of("truncate[4]", Transforms.truncate(4)));
    print(Types.FixedType.ofLength(7), fixed, bucket);
    print(Types.UUIDType.get(), uuids, bucket);
  }
}
