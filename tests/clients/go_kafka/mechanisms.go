// franz-go and Sarama over TLS with each mechanism; a wrong password is refused.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// mechanisms logs in with each mechanism. The folder has ca.pem, and the certificate and key of the client.
func mechanisms(address, folder, user, password string) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(must(os.ReadFile(filepath.Join(folder, "ca.pem")))) {
		panic("no authority")
	}
	own := must(tls.LoadX509KeyPair(filepath.Join(folder, "client.pem"), filepath.Join(folder, "client.key")))
	secure := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}}
	for _, given := range []string{password, "wrong"} {
		isRight := given == password
		proof := scram.Auth{User: user, Pass: given}
		for _, mechanism := range []sasl.Mechanism{
			plain.Auth{User: user, Pass: given}.AsMechanism(),
			proof.AsSha256Mechanism(),
			proof.AsSha512Mechanism(),
		} {
			client := must(kgo.NewClient(kgo.SeedBrokers(address), kgo.DialTLSConfig(secure), kgo.SASL(mechanism)))
			_, err := kadm.NewClient(client).BrokerMetadata(ctx)
			client.Close()
			if (err == nil) != isRight {
				panic(fmt.Sprint("franz-go ", mechanism.Name(), " ", isRight, " ", err))
			}
		}
		config := sarama.NewConfig()
		config.Net.TLS.Enable, config.Net.TLS.Config = true, secure
		config.Net.SASL.Enable, config.Net.SASL.User, config.Net.SASL.Password = true, user, given
		config.Metadata.Retry.Max = 0
		client, err := sarama.NewClient([]string{address}, config)
		if (err == nil) != isRight {
			panic(fmt.Sprint("Sarama ", isRight, " ", err))
		}
		if err == nil {
			check(client.Close())
		}
	}
}
