package bucket

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get

// Keys of the Secret with the credentials.
const (
	accessKey    = "accessKeyID"
	secretKey    = "secretAccessKey"
	authorityKey = "ca.crt"
)

// authorityLength is the length of the names of clusters' folders, in hex digits.
const authorityLength = 16

// Open returns the folder of a cluster at a destination. It reads the Secrets of the
// credentials and of the cluster's etcd from live, and connects to nothing yet. An error says
// what a person has to correct.
func Open(ctx context.Context, live client.Reader, namespace, cluster string, at infrav1.S3Bucket) (*Bucket, error) {
	credentials, err := read(ctx, live, namespace, at.CredentialsRef.Name)
	if err != nil {
		return nil, fmt.Errorf("reading the credentials: %w", err)
	}
	id, key := string(credentials[accessKey]), string(credentials[secretKey])
	if id == "" || key == "" {
		return nil, fmt.Errorf("reading the credentials: Secret %s needs the keys %s and %s", at.CredentialsRef.Name, accessKey, secretKey)
	}
	authority, signer, err := authority(ctx, live, namespace, cluster)
	if err != nil {
		return nil, err
	}
	b := &Bucket{bucket: at.Bucket, trustBundle: string(credentials[authorityKey]), folder: authority + "/"}
	if at.Prefix != "" {
		b.prefix = at.Prefix + "/"
		b.folder = b.prefix + b.folder
	}
	if b.sealer, err = newSealer(signer); err != nil {
		return nil, err
	}
	if b.http, err = newHTTPClient(b.trustBundle); err != nil {
		return nil, fmt.Errorf("reading the credentials: Secret %s: %w", at.CredentialsRef.Name, err)
	}
	b.client = s3.New(s3.Options{
		BaseEndpoint: aws.String(strings.TrimSuffix(at.Endpoint, "/")), Region: cmp.Or(at.Region, infrav1.DefaultS3Region), UsePathStyle: true,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: id, SecretAccessKey: key}, nil
		}),
		HTTPClient: b.http, RetryMaxAttempts: 1,
		// Other storages than Amazon's refuse its own checksums.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
	})
	return b, nil
}

// authority returns what stands for the certificate authority of the cluster's etcd, and its
// private key if the Secret has it. Hosts derive the first from /etc/kubernetes/pki/etcd/ca.crt.
func authority(ctx context.Context, live client.Reader, namespace, cluster string) (id string, key []byte, err error) {
	name := secret.Name(cluster, secret.EtcdCA)
	data, err := read(ctx, live, namespace, name)
	if err != nil {
		return "", nil, fmt.Errorf("reading the certificate authority of etcd: %w", err)
	}
	certificate := data[secret.TLSCrtDataName]
	if len(certificate) == 0 {
		return "", nil, fmt.Errorf("reading the certificate authority of etcd: Secret %s has no %s", name, secret.TLSCrtDataName)
	}
	sum := sha256.Sum256(certificate)
	return hex.EncodeToString(sum[:])[:authorityLength], data[secret.TLSKeyDataName], nil
}

func read(ctx context.Context, live client.Reader, namespace, name string) (map[string][]byte, error) {
	s := &corev1.Secret{}
	err := live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, s)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no Secret %s", name)
	case err != nil:
		return nil, fmt.Errorf("getting Secret %s: %w", name, err)
	}
	return s.Data, nil
}
