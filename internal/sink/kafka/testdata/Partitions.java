import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Properties;
import java.util.Scanner;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Utils;

/**
 * Partitions <bootstrap> <topic> <partitions>: reads a key a line, in base64, and writes for each the partition that the
 * client's own partitioner computes, its murmur2, and the partition into which its own producer put a record.
 */
public class Partitions {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("key.serializer", ByteArraySerializer.class.getName());
        properties.put("value.serializer", ByteArraySerializer.class.getName());
        List<byte[]> keys = new ArrayList<>();
        Scanner in = new Scanner(System.in, StandardCharsets.UTF_8);
        while (in.hasNextLine()) {
            keys.add(Base64.getDecoder().decode(in.nextLine()));
        }
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties)) {
            for (byte[] key : keys) {
                sent.add(producer.send(new ProducerRecord<>(args[1], key, key)));
            }
        }
        for (int i = 0; i < keys.size(); i++) {
            int computed = BuiltInPartitioner.partitionForKey(keys.get(i), Integer.parseInt(args[2]));
            System.out.println(computed + " " + Utils.murmur2(keys.get(i)) + " " + sent.get(i).get().partition());
        }
    }
}
