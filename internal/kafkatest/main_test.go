package kafkatest_test

import (
	"os"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/kafkatest"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Run(m)) }
