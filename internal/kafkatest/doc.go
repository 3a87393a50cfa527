// Package kafkatest starts throwaway Kafka brokers: the real ones, in KRaft mode, from the jars that Maven fetches once
// per user.
//
// Shared is what most tests ask for: one broker that all tests of a binary share, and a topic of its own for each test
// (UniqueTopic). StartCluster and NewCluster start brokers whose nodes may be stopped, killed and started again on the
// same ports with the same data. What a test reads back (ReadN, Consume) comes through a consumer that the relay has no
// part in, and JavaProduce writes with the Java client's own producer.
//
// A binary that uses Shared should end it in TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(kafkatest.Run(m)) }
//
// Without that the broker still ends with the process.
//
// Invariants: no broker outlives the process that started it; a missing Java or Maven fails the test with how to get it.
// The package doesn't import testing.
package kafkatest
