package server_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/api"
)

func rotation(tb testing.TB, from, to *agent, generation int64) protocol.RotateRequest {
	tb.Helper()
	spki, err := identity.PublicKeyBytes(to.key)
	if err != nil {
		tb.Fatal(err)
	}
	signature, err := identity.SignRotation(to.key, from.fingerprint)
	if err != nil {
		tb.Fatal(err)
	}
	return protocol.RotateRequest{PublicKey: spki, Signature: signature, Generation: generation}
}

// document is the part of the OpenAPI document that is compared with the code.
type document struct {
	Paths map[string]map[string]struct {
		Responses map[string]any `json:"responses"`
	} `json:"paths"`
	Components struct {
		Schemas map[string]struct {
			Properties map[string]struct {
				Enum []string `json:"enum"`
			} `json:"properties"`
			Required []string `json:"required"`
		} `json:"schemas"`
	} `json:"components"`
}

func TestOpenAPIDocument(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	got := a.call(http.MethodGet, api.PathOpenAPI, nil)
	g.Expect(got.status).To(Equal(http.StatusOK))
	var doc document
	g.Expect(json.Unmarshal([]byte(got.body), &doc)).To(Succeed())

	var documented []string
	for path, methods := range doc.Paths {
		for method, operation := range methods {
			documented = append(documented, strings.ToUpper(method)+" "+path)
			g.Expect(operation.Responses).NotTo(BeEmpty())
			// Served: everything else would be 404 or 405.
			served, err := a.do(t.Context(), strings.ToUpper(method), path, "", nil)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(served.status).NotTo(BeElementOf(http.StatusMethodNotAllowed))
			if served.status == http.StatusNotFound {
				g.Expect(served.problem().Type).To(Equal(protocol.ProblemNoOperation))
			}
		}
	}
	g.Expect(documented).To(ConsistOf(api.Routes()), "each route is in the document")

	for _, value := range []any{
		protocol.Hello{}, protocol.EnrolRequest{}, protocol.EnrolResponse{}, protocol.Inventory{}, protocol.SMBIOS{}, protocol.CPU{},
		protocol.Disk{}, protocol.NIC{}, protocol.OS{}, protocol.Address{}, protocol.Cleanliness{}, protocol.Plan{}, protocol.Desired{},
		protocol.Operation{}, protocol.Report{}, protocol.OperationReport{}, protocol.RotateRequest{}, protocol.Problem{},
		protocol.Previous{}, protocol.AgentRelease{}, protocol.AgentUpdate{}, protocol.ErasedDisk{},
		protocol.Endpoint{}, protocol.File{}, protocol.EndpointReport{}, protocol.Probe{}, protocol.APIServer{},
		protocol.LocalEndpoint{}, protocol.Kubernetes{}, protocol.Program{}, protocol.ContainerRuntime{}, protocol.Preflight{},
		protocol.Bundle{}, protocol.BundleReport{}, protocol.NodeUpgrade{}, protocol.Redirect{}, protocol.EtcdRestore{}, protocol.ControlPlaneHalt{}, protocol.Adoption{},
		protocol.EtcdSnapshot{}, protocol.EtcdCluster{}, protocol.EtcdSnapshotReport{}, protocol.EtcdSnapshotFacts{}, protocol.EtcdSnapshotFailure{},
		protocol.EtcdSnapshotUpload{}, protocol.EtcdSnapshotFolder{}, protocol.EtcdSnapshotGrantRequest{}, protocol.EtcdSnapshotGrant{}, protocol.EtcdSnapshotUploadReport{},
		protocol.EtcdSnapshotObject{}, protocol.EtcdSnapshotUploadFailure{}, protocol.EtcdSnapshotFetchRequest{}, protocol.EtcdSnapshotFetchGrant{},
		protocol.ControlPlaneSetupRequest{}, protocol.ControlPlaneSetup{},
		protocol.LogRequest{}, protocol.HostLog{}, protocol.CertificateReport{}, protocol.CertificateFacts{},
		protocol.Successor{}, protocol.SuccessorReport{},
	} {
		kind := reflect.TypeOf(value)
		schema, ok := doc.Components.Schemas[kind.Name()]
		g.Expect(ok).To(BeTrue(), kind.Name())
		var fields, required []string
		for field := range kind.Fields() {
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			fields = append(fields, name)
			if !strings.Contains(options, "omit") {
				required = append(required, name)
			}
		}
		var properties []string
		for name := range schema.Properties {
			properties = append(properties, name)
		}
		g.Expect(properties).To(ConsistOf(fields), kind.Name())
		slices.Sort(required)
		slices.Sort(schema.Required)
		g.Expect(schema.Required).To(Equal(required), kind.Name())
		delete(doc.Components.Schemas, kind.Name())
	}
	g.Expect(doc.Components.Schemas).To(BeEmpty(), "the document has no other kinds than the protocol")
}
