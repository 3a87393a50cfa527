package redisstream_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testbed.Closing(m)) }
