# vault policy write operator operator.hcl
path "transit/encrypt/orders" {
  capabilities = ["update"]
}
path "transit/decrypt/orders" {
  capabilities = ["update"]
}
path "transit/rewrap/orders" {
  capabilities = ["update"]
}
path "transit/encrypt/pii" {
  capabilities = ["update"]
}
path "transit/decrypt/pii" {
  capabilities = ["update"]
}
path "transit/rewrap/pii" {
  capabilities = ["update"]
}
