package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"
)

// writes counts the writes that an API server served, by verb and resource.
type writes map[string]int

// counters reads the API server's own count of writes. Leases are left out:
// they are the heartbeat of leader elections.
type counters struct {
	http *http.Client
	url  string
}

func newCounters(config *rest.Config) (*counters, error) {
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for metrics: %w", err)
	}
	return &counters{http: c, url: strings.TrimSuffix(config.Host, "/") + "/metrics"}, nil
}

var (
	sample = regexp.MustCompile(`^apiserver_request_total\{(.*)\} (\S+)$`)
	label  = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// read returns the counts as of now.
func (c *counters) read(ctx context.Context) (writes, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("asking for metrics: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking for metrics: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking for metrics: %s", response.Status)
	}
	return parse(response.Body)
}

func parse(metrics io.Reader) (writes, error) {
	out := writes{}
	lines := bufio.NewScanner(metrics)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		match := sample.FindStringSubmatch(lines.Text())
		if match == nil {
			continue
		}
		l := map[string]string{}
		for _, m := range label.FindAllStringSubmatch(match[1], -1) {
			l[m[1]] = m[2]
		}
		if !slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}, l["verb"]) || l["resource"] == "leases" {
			continue
		}
		n, err := strconv.ParseFloat(match[2], 64)
		if err != nil {
			return nil, fmt.Errorf("parsing %q: %w", lines.Text(), err)
		}
		resource := strings.TrimSuffix(l["group"]+"/"+l["resource"]+"/"+l["subresource"], "/")
		out[l["verb"]+" "+resource+" "+l["code"]] += int(n)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	return out, nil
}

// since returns what was written since before.
func (w writes) since(before writes) writes {
	out := writes{}
	for what, n := range w {
		if n != before[what] {
			out[what] = n - before[what]
		}
	}
	return out
}

// ours counts the writes to the provider's kinds and to Secrets. What the API
// server refused, such as the loser of a conflict, is none.
func (w writes) ours() int {
	total := 0
	for what, n := range w {
		if refused := !strings.Contains(what, " 20"); refused {
			continue
		}
		if strings.Contains(what, " infrastructure.cluster.x-k8s.io/") || strings.Contains(what, " /secrets") {
			total += n
		}
	}
	return total
}

func (w writes) String() string {
	var out []string
	for _, what := range slices.Sorted(maps.Keys(w)) {
		out = append(out, fmt.Sprintf("%d %s", w[what], what))
	}
	return strings.Join(out, ", ")
}
