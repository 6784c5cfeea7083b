// amqp091-go over TLS: a message goes through a queue.
//
// Usage: tls HOST:PORT FOLDER. FOLDER has ca.pem, and the certificate and key of the client.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"

	amqp "github.com/rabbitmq/amqp091-go"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	folder := os.Args[2]
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(must(os.ReadFile(filepath.Join(folder, "ca.pem")))) {
		panic("no authority")
	}
	own := must(tls.LoadX509KeyPair(filepath.Join(folder, "client.pem"), filepath.Join(folder, "client.key")))
	config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS13}
	connection := must(amqp.DialTLS("amqps://guest:guest@"+os.Args[1]+"/", config))
	channel := must(connection.Channel())
	queue := must(channel.QueueDeclare("go-tls", true, false, false, false, nil))
	body := make([]byte, 1<<20)
	for at := range body {
		body[at] = byte(at % 251)
	}
	if err := channel.Publish("", queue.Name, false, false, amqp.Publishing{Body: body}); err != nil {
		panic(err)
	}
	deliveries := must(channel.Consume(queue.Name, "", true, false, false, false, nil))
	if string((<-deliveries).Body) != string(body) {
		panic("the message came back changed")
	}
	if err := connection.Close(); err != nil {
		panic(err)
	}
	fmt.Println("done")
}
