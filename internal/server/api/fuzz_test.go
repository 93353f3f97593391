package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hostname"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/facts"
)

// maxStatus bounds the size of a host's status after any request, far below the limit of the
// API server.
const maxStatus = 512 << 10

// decodeBody decodes a body as a handler does.
func decodeBody[T any](body string) (T, error) {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return decode[T](httptest.NewRecorder(), r)
}

// checkStatus fails the test unless the status can be stored.
func checkStatus(t *testing.T, host *infrav1.ElementalHost) {
	t.Helper()
	raw, err := json.Marshal(host.Status)
	if err != nil || len(raw) > maxStatus || !utf8.Valid(raw) {
		t.Errorf("a status of %d bytes: %v", len(raw), err)
	}
}

func FuzzEnrol(f *testing.F) {
	f.Add(`{"hello":{"protocol":1,"agentVersion":"v1","time":"1970-01-01T00:00:00Z","trustDigest":"0123456789abcdef"},"inventory":{"smbios":{"serialNumber":"S"},"disks":[{"name":"sda"}],"nics":[{"name":"e","addresses":["10.0.0.1/8"]}]},"addresses":[{"type":"InternalIP","address":"10.0.0.1"}],"cleanliness":{"clean":false,"leftovers":["x"]},"previous":{"hostID":"h","namespace":"n","name":"Box 1"}}`)
	f.Add(`{"hello":{"time":"9999-12-31T23:59:59Z"},"inventory":{},"cleanliness":{"clean":true}}`)
	f.Add(`{`)
	f.Fuzz(func(t *testing.T, body string) {
		in, err := decodeBody[protocol.EnrolRequest](body)
		if err != nil {
			return
		}
		host := &infrav1.ElementalHost{}
		facts.SetEnrolled(host, &in, time.Unix(1e9, 0))
		checkStatus(t, host)
		facts.MeaninglessSerial(facts.Text(in.Inventory.SMBIOS.SerialNumber))
		if in.Previous != nil {
			if name := hostname.WithSuffix(in.Previous.Name, ""); len(name) > 63 {
				t.Errorf("a name of %d characters", len(name))
			}
		}
	})
}

func FuzzReport(f *testing.F) {
	f.Add(`{"hello":{"protocol":1},"agentUpdate":{"version":"v2","state":"Failed","message":"m"},"operations":[{"type":"Reset","id":"c1","state":"Succeeded","erased":[{"name":"sda","result":"Erased"}]}]}`)
	f.Add(`{"operations":[{"type":"Bootstrap","id":"c1","state":"Failed","step":"s","message":"m","startedAt":"0001-01-01T00:00:00Z","finishedAt":"2026-01-01T00:00:00+23:59"}]}`)
	f.Add(`{"operations":[{"type":"Reboot","id":"r1","state":"Running"},{"type":"Upgrade","id":"u1","state":"Unsupported"}],"addresses":[{}],"inventory":{"cpu":{"cores":-1}}}`)
	f.Add(`{"endpoint":{"kubeconfigs":"[fd00::1]:6443","probe":{"endpoint":"a.b:1","reachable":true,"forSeconds":2147483647,"message":"m"},"apiServer":{"ready":true,"forSeconds":-1,"certificateNames":["*.a","::1"]}}}`)
	f.Fuzz(func(t *testing.T, body string) {
		in, err := decodeBody[protocol.Report](body)
		if err != nil {
			return
		}
		now := time.Unix(1e9, 0)
		host := &infrav1.ElementalHost{Spec: infrav1.ElementalHostSpec{
			Claim:  &infrav1.HostClaim{ID: "c1", Phase: infrav1.ClaimReleasing},
			Reboot: &infrav1.HostReboot{ID: "r1"}, OSUpgrade: &infrav1.HostOSUpgrade{ID: "u1"},
		}}
		facts.SetReported(host, &in, now)
		ops, err := facts.OperationsOf(in.Operations)
		if err != nil {
			return
		}
		if host.Status.Endpoint, err = facts.EndpointOf(in.Endpoint, now); err != nil {
			return
		}
		if is := host.Status.Endpoint; is != nil && is.Probe != nil && (is.Probe.Since.After(now) || now.Sub(is.Probe.Since.Time) > 24*time.Hour) {
			t.Errorf("a probe since %s at %s", is.Probe.Since, now)
		}
		for _, op := range ops {
			if facts.RecordOperation(host, op.HostOperation, now) == nil && len(op.Erased) > 0 {
				host.Status.Erasure = &infrav1.HostErasure{OperationID: op.ID, Disks: op.Erased}
			}
		}
		if len(host.Status.Operations) > 4 {
			t.Errorf("%d operations are recorded", len(host.Status.Operations))
		}
		checkStatus(t, host)
	})
}

func FuzzRotate(f *testing.F) {
	f.Add(`{"publicKey":"MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE","signature":"MEUCIQ==","generation":1}`)
	f.Add(`{"publicKey":"","signature":"","generation":-1}`)
	f.Fuzz(func(t *testing.T, body string) {
		in, err := decodeBody[protocol.RotateRequest](body)
		if err != nil {
			return
		}
		if fingerprint, err := identity.VerifyRotation(in.PublicKey, in.Signature, "sha256:"+strings.Repeat("0", 64)); err == nil {
			t.Errorf("a key was proven by chance: %s", fingerprint)
		}
	})
}
