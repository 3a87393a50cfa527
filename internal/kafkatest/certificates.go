package kafkatest

import "github.com/cdc-relay/cdc-relay/internal/testbed"

// Certificates are what a client needs to trust the brokers and to show who it is. The broker knows the client's as
// User:CN=client.
type Certificates = testbed.Certificates
