package kafkatest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/cdc-relay/cdc-relay/internal/testbed"
)

// changeTimeout is how long a change may take to be seen by all nodes.
const changeTimeout = 30 * time.Second

func clientConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = "kafkatest"
	config.Version = sarama.V4_1_0_0
	config.Net.DialTimeout = 5 * time.Second
	config.Metadata.AllowAutoTopicCreation = false
	return config
}

func (c *Cluster) admin(do func(sarama.ClusterAdmin) error) error {
	admin, err := sarama.NewClusterAdmin(c.Brokers(), clientConfig())
	if err != nil {
		return err
	}
	return errors.Join(do(admin), admin.Close())
}

// addScramUsers sends a request per mechanism, since Kafka refuses a user that one request names twice, and waits until
// the broker knows them: that it has stored them comes earlier.
func (c *Cluster) addScramUsers(ctx context.Context) error {
	if len(c.options.Users) == 0 {
		return nil
	}
	return c.admin(func(admin sarama.ClusterAdmin) (err error) {
		for _, mechanism := range []sarama.ScramMechanismType{sarama.SCRAM_MECHANISM_SHA_256, sarama.SCRAM_MECHANISM_SHA_512} {
			results, failed := admin.UpsertUserScramCredentials(c.scramUsers(mechanism))
			err = errors.Join(err, failed)
			for _, r := range results {
				if r.ErrorCode != sarama.ErrNoError {
					err = errors.Join(err, fmt.Errorf("add the user %s: %w", r.User, r.ErrorCode))
				}
			}
		}
		for err == nil && !c.knowsScramUsers(admin) {
			err = ctx.Err()
			time.Sleep(testbed.Tick)
		}
		return err
	})
}

func (c *Cluster) knowsScramUsers(admin sarama.ClusterAdmin) bool {
	users, err := admin.DescribeUserScramCredentials(slices.Collect(maps.Keys(c.options.Users)))
	return err == nil && len(users) == len(c.options.Users) &&
		!slices.ContainsFunc(users, func(u *sarama.DescribeUserScramCredentialsResult) bool {
			return u.ErrorCode != sarama.ErrNoError || len(u.CredentialInfos) != 2
		})
}

func (c *Cluster) scramUsers(mechanism sarama.ScramMechanismType) []sarama.AlterUserScramCredentialsUpsert {
	var users []sarama.AlterUserScramCredentialsUpsert
	for name, password := range c.options.Users {
		salt := make([]byte, 16)
		_, _ = rand.Read(salt) // never fails
		users = append(users, sarama.AlterUserScramCredentialsUpsert{
			Name: name, Mechanism: mechanism, Iterations: 4096, Salt: salt, Password: []byte(password),
		})
	}
	return users
}

var topics atomic.Int64

// TopicName is a topic's name that no other test uses. No topic is made.
func TopicName(t TB) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, t.Name())
	return fmt.Sprintf("%.100s-%d", name, topics.Add(1))
}

// UniqueTopic makes a topic with one partition for this test and returns its name.
func (c *Cluster) UniqueTopic(t TB) string {
	t.Helper()
	name := TopicName(t)
	c.CreateTopic(t, name, 1, nil)
	return name
}

// CreateTopic makes a topic, with a replica on each node (at most 3), and waits until every running node knows its
// leaders.
func (c *Cluster) CreateTopic(t TB, name string, partitions int, configs map[string]string) {
	t.Helper()
	detail := &sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: int16(min(3, len(c.nodes))), ConfigEntries: map[string]*string{}}
	for k, v := range configs {
		detail.ConfigEntries[k] = &v
	}
	err := c.admin(func(admin sarama.ClusterAdmin) error { return admin.CreateTopic(name, detail, false) })
	if err != nil {
		t.Fatalf("create the topic %s: %v", name, err)
	}
	c.onEveryNode(t, "leaders of the topic "+name, func(n *node) error { return n.leads(name, partitions) })
}

// AddPartitions raises a topic's number of partitions.
func (c *Cluster) AddPartitions(t TB, topic string, partitions int) {
	t.Helper()
	err := c.admin(func(admin sarama.ClusterAdmin) error {
		return admin.CreatePartitions(topic, int32(partitions), nil, false)
	})
	if err != nil {
		t.Fatalf("add partitions to the topic %s: %v", topic, err)
	}
	c.onEveryNode(t, "leaders of the topic "+topic, func(n *node) error { return n.leads(topic, partitions) })
}

// AlterTopicConfig sets configurations of a topic, such as max.message.bytes. They hold a moment later: repeat what
// depends on them until it does.
func (c *Cluster) AlterTopicConfig(t TB, topic string, configs map[string]string) {
	t.Helper()
	entries := map[string]sarama.IncrementalAlterConfigsEntry{}
	for k, v := range configs {
		entries[k] = sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &v}
	}
	err := c.admin(func(admin sarama.ClusterAdmin) error {
		return admin.IncrementalAlterConfig(sarama.TopicResource, topic, entries, false)
	})
	if err != nil {
		t.Fatalf("configure the topic %s: %v", topic, err)
	}
}

// DeleteTopic removes a topic and waits until no node knows it.
func (c *Cluster) DeleteTopic(t TB, topic string) {
	t.Helper()
	if err := c.admin(func(admin sarama.ClusterAdmin) error { return admin.DeleteTopic(topic) }); err != nil {
		t.Fatalf("delete the topic %s: %v", topic, err)
	}
	c.onEveryNode(t, "the end of the topic "+topic, func(n *node) error {
		if err := n.leads(topic, 1); !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
			return fmt.Errorf("node %d still knows it (%w)", n.id, err)
		}
		return nil
	})
}

// Allow lets a principal, such as User:alice, do operations on a topic ("*": on every topic).
func (c *Cluster) Allow(t TB, principal, topic string, operations ...sarama.AclOperation) {
	t.Helper()
	acls := &sarama.ResourceAcls{Resource: sarama.Resource{
		ResourceType: sarama.AclResourceTopic, ResourceName: topic, ResourcePatternType: sarama.AclPatternLiteral,
	}}
	for _, o := range operations {
		acls.Acls = append(acls.Acls, &sarama.Acl{Principal: principal, Host: "*", Operation: o, PermissionType: sarama.AclPermissionAllow})
	}
	err := c.admin(func(admin sarama.ClusterAdmin) error { return admin.CreateACLs([]*sarama.ResourceAcls{acls}) })
	if err != nil {
		t.Fatalf("allow %s %v on %s: %v", principal, operations, topic, err)
	}
}

func (c *Cluster) onEveryNode(t TB, what string, holds func(*node) error) {
	t.Helper()
	for _, n := range c.nodes {
		if !n.running() {
			continue
		}
		testbed.Eventually(t, changeTimeout, what, func() error { return holds(n) })
	}
}

// leads is nil when the node knows leaders of so many partitions of the topic.
func (n *node) leads(topic string, partitions int) error {
	metadata, err := n.metadata([]string{topic})
	if err != nil {
		return err
	}
	if len(metadata.Topics) != 1 {
		return fmt.Errorf("node %d answered about %d topics", n.id, len(metadata.Topics))
	}
	found := metadata.Topics[0]
	if found.Err != sarama.ErrNoError {
		return fmt.Errorf("node %d: %w", n.id, found.Err)
	}
	if len(found.Partitions) < partitions {
		return fmt.Errorf("node %d knows %d partitions of %d", n.id, len(found.Partitions), partitions)
	}
	for _, p := range found.Partitions {
		if p.Err != sarama.ErrNoError {
			return fmt.Errorf("node %d, partition %d: %w", n.id, p.ID, p.Err)
		}
	}
	return nil
}
