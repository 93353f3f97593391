package hostkey_test

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/hostkey"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/tpm"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/tpm/softtpm"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
)

func TestPolicies(t *testing.T) {
	works := softtpm.Start(t)
	none := tpm.Device{Path: filepath.Join(t.TempDir(), "none")}
	broken := tpm.Device{Path: t.TempDir(), Open: func(string) (transport.TPMCloser, error) { return nil, errors.New("broken") }}
	inTPM, err := hostkey.Keys{Policy: hostkey.Required, TPM: works}.New("")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		policy  hostkey.Policy
		tpm     tpm.Device
		current string
		place   string
	}{
		"auto with a TPM":                           {hostkey.Auto, works, "", "TPM"},
		"auto without a TPM":                        {hostkey.Auto, none, "", "file"},
		"auto with a broken TPM":                    {hostkey.Auto, broken, "", "file"},
		"auto never replaces a TPM key, broken TPM": {hostkey.Auto, broken, inTPM, ""},
		"auto never replaces a TPM key, no TPM":     {hostkey.Auto, none, inTPM, ""},
		"required without a TPM":                    {hostkey.Required, none, "", ""},
		"required with a broken TPM":                {hostkey.Required, broken, "", ""},
		"off with a TPM":                            {hostkey.Off, works, "", "file"},
		"off with the current key in a TPM":         {hostkey.Off, works, inTPM, "file"},
	} {
		t.Run(name, func(t *testing.T) {
			keys := hostkey.Keys{Policy: test.policy, TPM: test.tpm, Log: slog.New(slog.DiscardHandler)}
			text, err := keys.New(test.current)
			if test.place == "" {
				if err == nil {
					t.Error("created a key")
				}
				return
			}
			if err != nil || hostkey.Place(text) != test.place {
				t.Fatalf("created a key in the %s: %v", hostkey.Place(text), err)
			}
			if err := hostkey.Check(text); err != nil {
				t.Error(err)
			}
			signer, err := keys.Signer(text)
			if err != nil {
				t.Fatal(err)
			}
			certificate, err := identity.ClientCertificate(signer)
			if err != nil {
				t.Fatal(err)
			}
			fingerprint, err := hostkey.Fingerprint(text)
			if err != nil || fingerprint != identity.Fingerprint(certificate.Leaf.RawSubjectPublicKeyInfo) {
				t.Errorf("fingerprint %s: %v", fingerprint, err)
			}
			if test.place == "TPM" && strings.Contains(text, "BEGIN PRIVATE KEY") {
				t.Error("the private key is not encrypted")
			}
		})
	}
	if err := hostkey.Check("nonsense"); err == nil {
		t.Error("Check accepted an invalid text")
	}
}
