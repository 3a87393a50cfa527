// Package protobuf makes payloads of protobuf messages. It is a package of its own so that applications without protobuf
// don't link it.
package protobuf

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/cdc-relay/cdc-relay/outbox"
)

// Payload is m in the wire format, for a payload column of type bytea. Fields and map entries are in a fixed order, so that
// equal messages of one version of the program have equal payloads.
func Payload(m proto.Message) outbox.Payload {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return outbox.Failed(fmt.Errorf("the payload can't be written as protobuf: %w", err))
	}
	return outbox.Bytes(data)
}

// JSON is m as ProtoJSON, for a payload column of any type.
func JSON(m proto.Message) outbox.Payload {
	data, err := protojson.Marshal(m)
	if err != nil {
		return outbox.Failed(fmt.Errorf("the payload can't be written as ProtoJSON: %w", err))
	}
	return outbox.JSON(json.RawMessage(data))
}
