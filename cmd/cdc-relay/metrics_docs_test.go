package main

import (
	"cmp"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// metric is what both the code and the documentation say of a metric.
type metric struct {
	Name, Kind string
	Labels     []string // sorted
}

func TestG7_TheDocumentationListsExactlyTheRegisteredMetrics(t *testing.T) {
	t.Parallel()
	if diff := gocmp.Diff(documented(t), registered(t)); diff != "" {
		t.Errorf("-docs/metrics.md +registered:\n%s", diff)
	}
}

// documented reads the rows of the tables in docs/metrics.md.
func documented(t *testing.T) (all []metric) {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| `cdc_relay_") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) != 6 || cells[4] == "" || cells[5] == "" {
			t.Errorf("a row without name, type, unit, labels, meaning and when to worry: %s", line)
			continue
		}
		m := metric{Name: strings.Trim(cells[0], "`"), Kind: cells[1], Labels: labelNames(cells[3])}
		if unit := unitOf(m.Name); unit != cells[2] {
			t.Errorf("%s: the unit is %q by its name and %q in the table", m.Name, unit, cells[2])
		}
		if (m.Kind == "counter") != strings.HasSuffix(m.Name, "_total") {
			t.Errorf("%s: a counter's name, and no other, ends in _total", m.Name)
		}
		all = append(all, m)
	}
	return sorted(all)
}

func labelNames(cell string) []string {
	found := regexp.MustCompile("[a-z_]+").FindAllString(cell, -1)
	slices.Sort(found)
	return found
}

func unitOf(name string) string {
	for _, unit := range []string{"seconds", "bytes"} {
		if strings.HasSuffix(strings.TrimSuffix(name, "_total"), "_"+unit) {
			return unit
		}
	}
	return ""
}

// registered takes the descriptors while they are registered: a vector without children shows nothing when gathered.
func registered(t *testing.T) []metric {
	t.Helper()
	r := &recorder{t: t, Registry: prometheus.NewRegistry()}
	registerAll(r, 10)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{}
	for _, f := range families {
		shown[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	for i, m := range r.all {
		r.all[i].Kind = cmp.Or(m.Kind, shown[m.Name])
	}
	return sorted(r.all)
}

// recorder is a registry that notes what it is given.
type recorder struct {
	*prometheus.Registry
	t   *testing.T
	all []metric
}

func (r *recorder) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		c.Describe(descs)
	}()
	for desc := range descs {
		r.all = append(r.all, described(r.t, desc, kindOf(c)))
	}
	return r.Registry.Register(c)
}

func (r *recorder) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			r.t.Error(err)
		}
	}
}

// kindOf knows the kinds that may have nothing to show yet; the others show theirs.
func kindOf(c prometheus.Collector) string {
	switch c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.GaugeVec:
		return "gauge"
	case *prometheus.HistogramVec:
		return "histogram"
	default:
		return ""
	}
}

// A descriptor can be read only as its text.
var (
	descText = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "(.*)", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	constant = regexp.MustCompile(`([a-z_]+)="`)
)

func described(t *testing.T, desc *prometheus.Desc, kind string) metric {
	t.Helper()
	m := descText.FindStringSubmatch(desc.String())
	if m == nil {
		t.Fatalf("a descriptor of another form: %s", desc)
	}
	if m[2] == "" {
		t.Errorf("%s has no help", m[1])
	}
	labels := labelNames(m[4])
	for _, found := range constant.FindAllStringSubmatch(m[3], -1) {
		labels = append(labels, found[1])
	}
	slices.Sort(labels)
	return metric{Name: m[1], Kind: kind, Labels: labels}
}

func sorted(all []metric) []metric {
	slices.SortFunc(all, func(a, b metric) int { return strings.Compare(a.Name, b.Name) })
	return all
}
