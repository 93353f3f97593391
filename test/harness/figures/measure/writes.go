package measure

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

// Write is a kind of request that changes objects.
type Write struct {
	// Verb is the verb in the API server's metrics: POST, PUT, PATCH, APPLY, DELETE, DELETECOLLECTION.
	Verb string
	// Group, Resource and Subresource name the resource.
	Group, Resource, Subresource string
	// Code is the HTTP status of the response.
	Code int
}

// String returns it as one word each for verb, resource and code.
func (w Write) String() string {
	resource := strings.TrimPrefix(w.Group+"/"+w.Resource, "/")
	return fmt.Sprintf("%s %s %d", w.Verb, strings.TrimSuffix(resource+"/"+w.Subresource, "/"), w.Code)
}

// Writes counts requests that an API server has answered.
type Writes map[Write]int

// APIServer reads the metrics of an API server.
type APIServer struct {
	http *http.Client
	url  string
}

// NewAPIServer returns a reader for a client configuration, which must be allowed to read metrics.
func NewAPIServer(config *rest.Config) (*APIServer, error) {
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for metrics: %w", err)
	}
	return &APIServer{http: c, url: strings.TrimSuffix(config.Host, "/") + "/metrics"}, nil
}

// Writes returns the writes since the server's start.
func (s *APIServer) Writes(ctx context.Context) (Writes, error) {
	var out Writes
	err := scrape(ctx, s.http, s.url, func(body io.Reader) (err error) {
		out, err = parseWrites(body)
		return err
	})
	return out, err
}

// scrape reads metrics in the text format of Prometheus.
func scrape(ctx context.Context, c *http.Client, url string, parse func(io.Reader) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("asking for metrics: %w", err)
	}
	response, err := c.Do(request)
	if err != nil {
		return fmt.Errorf("asking for metrics: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("asking for metrics: %s", response.Status)
	}
	return parse(response.Body)
}

func parseWrites(metrics io.Reader) (Writes, error) {
	sample := regexp.MustCompile(`^apiserver_request_total\{(.*)\} (\S+)$`)
	label := regexp.MustCompile(`(\w+)="([^"]*)"`)
	verbs := []string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}
	out := Writes{}
	lines := newScanner(metrics)
	for lines.Scan() {
		match := sample.FindStringSubmatch(lines.Text())
		if match == nil {
			continue
		}
		l := map[string]string{}
		for _, m := range label.FindAllStringSubmatch(match[1], -1) {
			l[m[1]] = m[2]
		}
		if !slices.Contains(verbs, l["verb"]) {
			continue
		}
		n, err := strconv.ParseFloat(match[2], 64)
		if err != nil {
			return nil, fmt.Errorf("reading a count: %w", err)
		}
		code, err := strconv.Atoi(l["code"])
		if err != nil {
			return nil, fmt.Errorf("reading a status: %w", err)
		}
		out[Write{Verb: l["verb"], Group: l["group"], Resource: l["resource"], Subresource: l["subresource"], Code: code}] += int(n)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	return out, nil
}

func newScanner(r io.Reader) *bufio.Scanner {
	const longest = 1 << 20
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longest)
	return lines
}

// Since returns the difference to an earlier count.
func (w Writes) Since(before Writes) Writes {
	out := Writes{}
	for what, n := range w {
		if n != before[what] {
			out[what] = n - before[what]
		}
	}
	return out
}

// Only returns the writes for which keep is true.
func (w Writes) Only(keep func(Write) bool) Writes {
	out := maps.Clone(w)
	maps.DeleteFunc(out, func(what Write, _ int) bool { return !keep(what) })
	return out
}

// Total returns their number.
func (w Writes) Total() int {
	total := 0
	for _, n := range w {
		total += n
	}
	return total
}

// String lists them in order.
func (w Writes) String() string {
	var out []string
	for what, n := range w {
		out = append(out, fmt.Sprintf("%s: %d", what, n))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// Accepted reports whether the request succeeded. A request that conflicts writes nothing.
func (w Write) Accepted() bool { return w.Code/100 == 2 }

// Lease reports whether it renews a Lease, of a server or of a leader.
func (w Write) Lease() bool { return w.Resource == "leases" }

// Event reports whether it writes an Event, which API servers keep for an hour.
func (w Write) Event() bool { return w.Resource == "events" }

// Review reports whether it is a review, such as a TokenReview, which stores nothing.
func (w Write) Review() bool {
	return w.Group == "authentication.k8s.io" || w.Group == "authorization.k8s.io"
}

// Object reports whether it changes an object other than a Lease, an Event or a review.
func (w Write) Object() bool { return w.Accepted() && !w.Lease() && !w.Event() && !w.Review() }
