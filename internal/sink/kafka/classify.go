package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"

	"github.com/IBM/sarama"
	"github.com/eapache/go-resiliency/breaker"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// scope is what an error says something about.
type scope uint8

const (
	// ofMessage: one record of the batch, perhaps not this one.
	ofMessage scope = iota
	// ofTopic: every record of the topic.
	ofTopic
	// ofPartition: every record of the partition, for now.
	ofPartition
	// ofProducer: the state that the broker keeps of this producer. A new producer can send the record.
	ofProducer
	// ofCluster: nothing can be sent.
	ofCluster
)

// verdict is what an error of a producer means.
type verdict struct {
	class  event.Class
	reason string
	scope  scope
}

func (v verdict) wrap(err error) *event.Error {
	return &event.Error{Class: v.class, Reason: v.reason, Err: err}
}

// classify judges an error that sarama gave for a record, or for a request of the cluster's metadata.
func classify(err error) verdict {
	if v, ok := classifyLocal(err); ok {
		return v
	}
	if code := sarama.KError(0); errors.As(err, &code) {
		return classifyCode(code)
	}
	// Whatever else comes from below the protocol: a lost connection.
	var netErr net.Error
	if errors.As(err, &netErr) || errors.Is(err, net.ErrClosed) || isEOF(err) {
		return verdict{event.Unavailable, "connection_lost", ofCluster}
	}
	// sarama has plain texts too, such as that of a message out of sequence. The contract: unknown is retryable.
	return verdict{event.Retryable, "unknown", ofMessage}
}

// classifyLocal judges errors that sarama itself makes, and contexts'. They come first: sarama wraps the cause of an
// outage in them.
func classifyLocal(err error) (verdict, bool) {
	var encoding sarama.PacketEncodingError
	var decoding sarama.PacketDecodingError
	var configuration sarama.ConfigurationError
	switch {
	case errors.Is(err, errFenced):
		// Not sent: the producer was fenced before it came to that.
		return verdict{event.Unavailable, "producer_fenced", ofProducer}, true
	case errors.Is(err, errClosed):
		return verdict{event.Unavailable, "sink_closed", ofCluster}, true
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, errPublishBound),
		errors.Is(err, errConnectTimeout):
		// Says nothing about the broker, nor the event.
		return verdict{event.Unavailable, "timed_out", ofCluster}, true
	case errors.Is(err, sarama.ErrSASLAuthenticationFailed):
		// A code too, but it hides beside others.
		return verdict{event.Unavailable, "authentication_failed", ofCluster}, true
	case isTLS(err):
		// The handshake failed.
		return verdict{event.Unavailable, "tls_failed", ofCluster}, true
	case errors.Is(err, breaker.ErrBreakerOpen):
		// sarama couldn't look up a leader three times, and doesn't try for 10 s.
		return verdict{event.Unavailable, "leader_unknown", ofCluster}, true
	case errors.Is(err, sarama.ErrOutOfBrokers), errors.Is(err, sarama.ErrNotConnected), errors.Is(err, sarama.ErrBrokerNotFound),
		errors.Is(err, sarama.ErrControllerNotAvailable):
		return verdict{event.Unavailable, "brokers_unreachable", ofCluster}, true
	case errors.Is(err, sarama.ErrClosedClient), errors.Is(err, sarama.ErrShuttingDown):
		// The producer is being closed: not sent.
		return verdict{event.Unavailable, "producer_closed", ofProducer}, true
	case errors.Is(err, sarama.ErrIncompleteResponse), errors.Is(err, sarama.ErrInsufficientData), errors.As(err, &decoding):
		// No answer that makes sense; whether the record is there is unknown.
		return verdict{event.Unavailable, "bad_response", ofCluster}, true
	case errors.Is(err, sarama.ErrProducerRetryBufferOverflow):
		return verdict{event.Unavailable, "producer_full", ofProducer}, true
	case errors.Is(err, sarama.ErrInvalidPartition):
		return verdict{event.Permanent, "invalid_partition", ofMessage}, true
	case errors.As(err, &encoding):
		// Some string is longer than the protocol allows. It fails all partitions of the request.
		return verdict{event.Permanent, "not_encodable", ofMessage}, true
	case errors.As(err, &configuration):
		// sarama refuses the message by its size or headers, before it has a batch.
		return verdict{event.Permanent, "refused_by_client", ofMessage}, true
	}
	return verdict{}, false
}

// isTLS says whether err is one of a TLS handshake.
func isTLS(err error) bool {
	var certificate *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	return errors.As(err, &certificate) || errors.As(err, &header) || isAlert(err)
}

// isAlert says whether the other side broke the handshake off. crypto/tls has no type of its own for that.
func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// classifyCode judges a broker's error code.
func classifyCode(code sarama.KError) verdict {
	switch code {
	// The broker looked at the records and found one that it will never take.
	case sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge:
		return verdict{event.Permanent, "message_too_large", ofMessage}
	case sarama.ErrInvalidRecord: // no key in a compacted topic, for one
		return verdict{event.Permanent, "invalid_record", ofMessage}
	case sarama.ErrInvalidTimestamp: // created_at is too far from the broker's clock
		return verdict{event.Permanent, "invalid_timestamp", ofMessage}
	case sarama.ErrUnsupportedForMessageFormat:
		return verdict{event.Permanent, "unsupported_message_format", ofMessage}
	case sarama.ErrPolicyViolation:
		return verdict{event.Permanent, "policy_violation", ofMessage}

	// The topic can't be written to until somebody does something about it.
	case sarama.ErrInvalidTopic:
		return verdict{event.Permanent, "invalid_topic", ofTopic}
	case sarama.ErrTopicAuthorizationFailed:
		return verdict{event.Permanent, "topic_not_authorized", ofTopic}
	case sarama.ErrUnknownTopicOrPartition: // may be in the making
		return verdict{event.Retryable, "unknown_topic", ofTopic}
	case sarama.ErrUnsupportedCompressionType:
		return verdict{event.Retryable, "unsupported_compression", ofTopic}
	case sarama.ErrInvalidRequiredAcks:
		return verdict{event.Retryable, "invalid_acks", ofTopic}

	// The partition has no leader, not enough replicas, or no disk, now.
	case sarama.ErrLeaderNotAvailable, sarama.ErrNotLeaderForPartition, sarama.ErrReplicaNotAvailable,
		sarama.ErrFencedLeaderEpoch, sarama.ErrUnknownLeaderEpoch, sarama.ErrOffsetNotAvailable,
		sarama.ErrPreferredLeaderNotAvailable, sarama.ErrEligibleLeadersNotAvailable:
		return verdict{event.Unavailable, "no_leader", ofPartition}
	case sarama.ErrNotEnoughReplicas, sarama.ErrNotEnoughReplicasAfterAppend:
		return verdict{event.Unavailable, "not_enough_replicas", ofPartition}
	case sarama.ErrRequestTimedOut:
		return verdict{event.Unavailable, "request_timed_out", ofPartition}
	case sarama.ErrKafkaStorageError, sarama.ErrLogDirNotFound:
		return verdict{event.Unavailable, "storage_error", ofPartition}
	case sarama.ErrThrottlingQuotaExceeded:
		return verdict{event.Unavailable, "quota_exceeded", ofPartition}

	// The broker lost or never had what an idempotent producer counts on.
	case sarama.ErrOutOfOrderSequenceNumber, sarama.ErrInvalidProducerEpoch, sarama.ErrInvalidProducerIDMapping,
		sarama.ErrUnknownProducerID, sarama.ErrProducerFenced:
		return verdict{event.Unavailable, "producer_state_lost", ofProducer}

	// No broker will take anything from us, now or until the configuration is mended.
	case sarama.ErrBrokerNotAvailable, sarama.ErrNetworkException, sarama.ErrStaleControllerEpochCode, sarama.ErrNotController,
		sarama.ErrStaleBrokerEpoch, sarama.ErrOffsetsLoadInProgress, sarama.ErrConsumerCoordinatorNotAvailable,
		sarama.ErrNotCoordinatorForConsumer, sarama.ErrListenerNotFound:
		return verdict{event.Unavailable, "brokers_unreachable", ofCluster}
	case sarama.ErrSASLAuthenticationFailed, sarama.ErrUnsupportedSASLMechanism, sarama.ErrIllegalSASLState, sarama.ErrSecurityDisabled:
		return verdict{event.Unavailable, "authentication_failed", ofCluster}
	case sarama.ErrClusterAuthorizationFailed: // no right to be an idempotent producer, before Kafka 3.0
		return verdict{event.Unavailable, "cluster_not_authorized", ofCluster}
	case sarama.ErrUnsupportedVersion:
		return verdict{event.Unavailable, "unsupported_version", ofCluster}

	// A checksum that doesn't match says more about the way than about the record.
	case sarama.ErrInvalidMessage:
		return verdict{event.Retryable, "corrupt_message", ofMessage}
	case sarama.ErrUnknown:
		return verdict{event.Retryable, "broker_error", ofMessage}
	default:
		// Codes that no answer to a produce or metadata request has.
		return verdict{event.Retryable, "broker_error", ofMessage}
	}
}
