package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/IBM/sarama"
	"github.com/eapache/go-resiliency/breaker"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// codes is every error code that sarama knows, with its class and scope. Of 46 (a record that is there already) sarama
// makes a success.
var codes = map[event.Class]map[scope][]sarama.KError{
	event.Permanent: {
		ofMessage: {10, 18, 32, 43, 44, 87},
		ofTopic:   {17, 29},
	},
	event.Unavailable: {
		ofPartition: {5, 6, 7, 9, 19, 20, 56, 57, 74, 75, 78, 80, 83, 89},
		ofProducer:  {45, 47, 49, 59, 90},
		ofCluster:   {8, 11, 13, 14, 15, 16, 31, 33, 34, 35, 41, 54, 58, 72, 77},
	},
	event.Retryable: {
		ofTopic: {3, 21, 76},
		ofMessage: {-1, 1, 2, 4, 12, 22, 23, 24, 25, 26, 27, 28, 30, 36, 37, 38, 39, 40, 42, 46, 48, 50, 51, 52, 53, 55,
			60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 73, 79, 81, 82, 84, 85, 86, 88, 95},
	},
}

func TestEveryErrorCodeHasItsClassAndScope(t *testing.T) {
	want := map[sarama.KError]verdict{}
	for class, scopes := range codes {
		for scope, list := range scopes {
			for _, code := range list {
				want[code] = verdict{class: class, scope: scope}
			}
		}
	}
	for code := sarama.KError(-1); code <= 200; code++ {
		known := !strings.HasPrefix(code.Error(), "Unknown error") || code == sarama.ErrProducerFenced
		w, listed := want[code]
		if code == sarama.ErrNoError {
			continue
		}
		if known && !listed {
			t.Errorf("code %d (%v) is not in the table", code, code)
		}
		if !listed { // brokers newer than sarama: the contract says retryable
			w = verdict{class: event.Retryable, scope: ofMessage}
		}
		for _, err := range []error{code, fmt.Errorf("topic x: %w", code), sarama.Wrap(errors.New("some of it"), code)} {
			got := classify(err)
			if got.class != w.class || got.scope != w.scope {
				t.Errorf("code %d (%v): %v, scope %d; want %v, scope %d", code, code, got.class, got.scope, w.class, w.scope)
			}
			checkReason(t, err, got.reason)
		}
	}
}

func TestErrorsWithoutACodeHaveTheirClassAndScope(t *testing.T) {
	for _, test := range []struct {
		err   error
		class event.Class
		scope scope
	}{
		{sarama.ErrOutOfBrokers, event.Unavailable, ofCluster},
		{sarama.Wrap(sarama.ErrOutOfBrokers, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), event.Unavailable, ofCluster},
		{breaker.ErrBreakerOpen, event.Unavailable, ofCluster},
		{sarama.ErrNotConnected, event.Unavailable, ofCluster},
		{sarama.ErrBrokerNotFound, event.Unavailable, ofCluster},
		{sarama.ErrControllerNotAvailable, event.Unavailable, ofCluster},
		{sarama.ErrIncompleteResponse, event.Unavailable, ofCluster},
		{sarama.ErrInsufficientData, event.Unavailable, ofCluster},
		{sarama.PacketDecodingError{Info: "x"}, event.Unavailable, ofCluster},
		{io.EOF, event.Unavailable, ofCluster},
		{io.ErrUnexpectedEOF, event.Unavailable, ofCluster},
		{net.ErrClosed, event.Unavailable, ofCluster},
		{os.ErrDeadlineExceeded, event.Unavailable, ofCluster},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, event.Unavailable, ofCluster},
		{&net.DNSError{Err: "no such host", Name: "kafka"}, event.Unavailable, ofCluster},
		{sarama.Wrap(sarama.ErrOutOfBrokers, &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), event.Unavailable, ofCluster},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, event.Unavailable, ofCluster},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, event.Unavailable, ofCluster},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, event.Unavailable, ofCluster},
		{context.Canceled, event.Unavailable, ofCluster},
		{context.DeadlineExceeded, event.Unavailable, ofCluster},
		{errPublishBound, event.Unavailable, ofCluster},
		{errConnectTimeout, event.Unavailable, ofCluster},
		{errClosed, event.Unavailable, ofCluster},
		{fencedError{}, event.Unavailable, ofProducer},
		{sarama.Wrap(sarama.ErrOutOfBrokers, fencedError{}), event.Unavailable, ofProducer},
		{sarama.ErrShuttingDown, event.Unavailable, ofProducer},
		{sarama.ErrClosedClient, event.Unavailable, ofProducer},
		{sarama.ErrProducerRetryBufferOverflow, event.Unavailable, ofProducer},
		{sarama.ErrInvalidPartition, event.Permanent, ofMessage},
		{sarama.PacketEncodingError{Info: "x"}, event.Permanent, ofMessage},
		{sarama.ConfigurationError("x"), event.Permanent, ofMessage},
		{errors.New("assertion failed: message out of sequence added to a batch"), event.Retryable, ofMessage},
	} {
		for _, err := range []error{test.err, fmt.Errorf("with a prefix: %w", test.err)} {
			got := classify(err)
			if got.class != test.class || got.scope != test.scope {
				t.Errorf("%v: %v, scope %d; want %v, scope %d", err, got.class, got.scope, test.class, test.scope)
			}
			checkReason(t, err, got.reason)
		}
	}
}

// checkReason demands a metric label: it must not come from the error's text.
func checkReason(t *testing.T, err error, reason string) {
	t.Helper()
	if reason == "" || strings.Trim(reason, "abcdefghijklmnopqrstuvwxyz_") != "" {
		t.Errorf("%v: the reason %q is no label", err, reason)
	}
}
