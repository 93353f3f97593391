package client_test

import (
	"encoding/json"
	"errors"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/traffic"
)

// recorded returns a recorded exchange, and a client that gets its answer to any call.
func recorded(t *testing.T, name string) (traffic.Exchange, *client.Client) {
	t.Helper()
	e, err := traffic.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	s, bundle := serving(t, e.Answer.ServeHTTP)
	return e, connect(t, func(o *client.Options) { o.Servers, o.TrustBundle = []string{s.URL}, bundle })
}

// same reports whether a decoded answer has all that was answered, and nothing else.
func same(t *testing.T, answered json.RawMessage, decoded any) bool {
	t.Helper()
	raw, err := json.Marshal(decoded)
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := errors.Join(json.Unmarshal(raw, &got), json.Unmarshal(answered, &want)); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(got, want)
}

// Plans of v0.1.0's manager lose nothing, and mean what they meant.
func TestPlansOfTheFirstRelease(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]protocol.Operation{
		"plan-idle":      {},
		"plan-pending":   {},
		"plan-bootstrap": {Type: protocol.OperationBootstrap, ClusterName: "load", MachineName: "m1"},
		"plan-log":       {Type: protocol.OperationBootstrap, ClusterName: "load", MachineName: "m1"},
		"plan-reset":     {Type: protocol.OperationReset, ClusterName: "load", MachineName: "m1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, c := recorded(t, name)
			p, err := c.Plan(t.Context(), "", "boot")
			if err != nil {
				t.Fatal(err)
			}
			if !same(t, e.Answer.Body, p) {
				t.Errorf("%s was decoded to %+v", e.Answer.Body, p)
			}
			if len(p.Desired.Servers) != 1 || !strings.Contains(p.Desired.TrustBundle, "recorded") || p.Revision == "" || p.ServerTime.IsZero() {
				t.Errorf("got %+v", p)
			}
			if p.Desired.Files != nil || p.Desired.Successor != nil {
				t.Error("a manager that knows of no files and no successor says nothing about them")
			}
			var got protocol.Operation
			if p.Operation != nil {
				got, want.ID = *p.Operation, operationOf(t)
			}
			if got != want {
				t.Errorf("got %+v instead of %+v", got, want)
			}
			if asked := p.Desired.Log; (asked != nil) != (name == "plan-log") || asked != nil && (asked.ID != "log-1" || asked.Operation != protocol.OperationBootstrap) {
				t.Errorf("asks for the log %+v", asked)
			}
		})
	}
}

// operationOf returns the ID of the recorded bootstrap, for which its agent has fetched the data.
func operationOf(t *testing.T) string {
	t.Helper()
	e, err := traffic.Read("bootstrap")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(e.Request.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("operation")
}

func TestEnrolmentAtTheFirstRelease(t *testing.T) {
	t.Parallel()
	for name, isApproved := range map[string]bool{"enrol": true, "enrol-pending": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, c := recorded(t, name)
			got, err := c.Enrol(t.Context(), "token", protocol.EnrolRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Approved != isApproved || got.HostID == "" || got.Namespace != "sites" || got.Name == "" || !same(t, e.Answer.Body, got) {
				t.Errorf("%s was decoded to %+v", e.Answer.Body, got)
			}
		})
	}
}

func TestBootstrapDataOfTheFirstRelease(t *testing.T) {
	t.Parallel()
	_, c := recorded(t, "bootstrap")
	data, format, err := c.Bootstrap(t.Context(), "any")
	if string(data) != "#cloud-config\n# recorded\n" || format != protocol.FormatCloudConfig || err != nil {
		t.Errorf("got %q, %s, %v", data, format, err)
	}
}

// What v0.1.0's manager has acknowledged counts as acknowledged.
func TestAcknowledgementsOfTheFirstRelease(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(*client.Client) error{
		"report-hello":     func(c *client.Client) error { return c.Report(t.Context(), protocol.Report{}) },
		"report-succeeded": func(c *client.Client) error { return c.Report(t.Context(), protocol.Report{}) },
		"log":              func(c *client.Client) error { return c.SendLog(t.Context(), "log-1", protocol.HostLog{}) },
	} {
		_, c := recorded(t, name)
		if err := call(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Refusals of v0.1.0's manager are the ones that an agent handles.
func TestRefusalsOfTheFirstRelease(t *testing.T) {
	t.Parallel()
	plan := func(c *client.Client) error {
		_, err := c.Plan(t.Context(), "", "boot")
		return err
	}
	for name, test := range map[string]struct {
		call func(*client.Client) error
		want string
	}{
		"plan-unknown-host": {plan, protocol.ProblemUnknownHost},
		"plan-revoked":      {plan, protocol.ProblemRevoked},
		"plan-locked":       {plan, protocol.ProblemLocked},
		"enrol-refused": {func(c *client.Client) error {
			_, err := c.Enrol(t.Context(), "wrong", protocol.EnrolRequest{})
			return err
		}, protocol.ProblemTokenRefused},
		"bootstrap-refused": {func(c *client.Client) error {
			_, _, err := c.Bootstrap(t.Context(), "any")
			return err
		}, protocol.ProblemNoOperation},
	} {
		e, c := recorded(t, name)
		err := test.call(c)
		if !client.IsProblem(err, test.want) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		refusal, _ := errors.AsType[*client.ProblemError](err)
		if !same(t, e.Answer.Body, refusal.Problem) {
			t.Errorf("%s: %s was decoded to %+v", name, e.Answer.Body, refusal.Problem)
		}
	}
}
