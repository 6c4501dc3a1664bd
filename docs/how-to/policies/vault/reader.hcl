# vault policy write reader reader.hcl
path "transit/decrypt/orders" {
  capabilities = ["update"]
}
path "transit/decrypt/pii" {
  capabilities = ["update"]
}
