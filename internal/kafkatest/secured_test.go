package kafkatest_test

import (
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"hash"
	"os"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"github.com/cdc-relay/cdc-relay/internal/kafkatest"
	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

func TestEveryMechanismLetsTheRightPasswordIn(t *testing.T) {
	t.Parallel()
	c := kafkatest.Secured(t)
	topic := c.UniqueTopic(t)
	for _, l := range []kafkatest.Listener{kafkatest.SASL, kafkatest.SASLTLS} {
		for _, mechanism := range []sarama.SASLMechanism{sarama.SASLTypePlaintext, sarama.SASLTypeSCRAMSHA256, sarama.SASLTypeSCRAMSHA512} {
			t.Run(string(l)+" "+string(mechanism), func(t *testing.T) {
				with := withSASL(mechanism, kafkatest.Alice, kafkatest.AlicePassword)
				if l == kafkatest.SASLTLS {
					withTLS(t, with, c.Certificates(), c.Certificates().CA, false)
				}
				if err := produce(c.BrokersOn(l), with, topic, "a"); err != nil {
					t.Error(err)
				}
				with.Net.SASL.Password = "wrong"
				if err := produce(c.BrokersOn(l), with, topic, "a"); err == nil {
					t.Error("a wrong password gets in")
				}
			})
		}
	}
	if n := len(c.ReadAll(t, topic)); n != 6 {
		t.Errorf("%d records", n)
	}
}

func TestTLSNeedsTheRightAuthorityAndMutualTLSACertificate(t *testing.T) {
	t.Parallel()
	c := kafkatest.Secured(t)
	topic := c.UniqueTopic(t)
	certs := c.Certificates()
	for _, test := range []struct {
		name     string
		listener kafkatest.Listener
		ca       string
		client   bool
		works    bool
	}{
		{"the right authority", kafkatest.TLS, certs.CA, false, true},
		{"another authority", kafkatest.TLS, certs.OtherCA, false, false},
		{"a client certificate", kafkatest.MutualTLS, certs.CA, true, true},
		{"no client certificate", kafkatest.MutualTLS, certs.CA, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			with := config()
			withTLS(t, with, certs, test.ca, test.client)
			if err := produce(c.BrokersOn(test.listener), with, topic, "a"); (err == nil) != test.works {
				t.Errorf("error = %v", err)
			}
		})
	}
}

func TestMalloryWritesOnlyWhereSheMay(t *testing.T) {
	t.Parallel()
	c := kafkatest.Secured(t)
	topic, forbidden := c.UniqueTopic(t), c.UniqueTopic(t)
	c.Allow(t, "User:"+kafkatest.Mallory, topic, sarama.AclOperationWrite, sarama.AclOperationDescribe)
	mallory := withSASL(sarama.SASLTypePlaintext, kafkatest.Mallory, kafkatest.MalloryPassword)
	testbed.Eventually(t, 20*time.Second, "the permission", func() error {
		return produce(c.BrokersOn(kafkatest.SASL), mallory, topic, "a")
	})
	err := produce(c.BrokersOn(kafkatest.SASL), mallory, forbidden, "a")
	if !errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
		t.Errorf("error = %v", err)
	}
}

func withSASL(mechanism sarama.SASLMechanism, user, password string) *sarama.Config {
	c := config()
	c.Net.SASL.Enable, c.Net.SASL.Mechanism = true, mechanism
	c.Net.SASL.User, c.Net.SASL.Password = user, password
	c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
		if mechanism == sarama.SASLTypeSCRAMSHA512 {
			return &scramClient{hash: sha512.New}
		}
		return &scramClient{hash: sha256.New}
	}
	return c
}

type scramClient struct {
	hash func() hash.Hash
	*scram.ClientConversation
}

func (s *scramClient) Begin(user, password, authzID string) error {
	client, err := scram.HashGeneratorFcn(s.hash).NewClient(user, password, authzID)
	if err != nil {
		return err
	}
	s.ClientConversation = client.NewConversation()
	return nil
}

func withTLS(t *testing.T, c *sarama.Config, certs *kafkatest.Certificates, ca string, client bool) {
	t.Helper()
	pem, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatal("no certificate in the file")
	}
	c.Net.TLS.Enable, c.Net.TLS.Config = true, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if client {
		pair, err := tls.LoadX509KeyPair(certs.ClientCert, certs.ClientKey)
		if err != nil {
			t.Fatal(err)
		}
		c.Net.TLS.Config.Certificates = []tls.Certificate{pair}
	}
}
